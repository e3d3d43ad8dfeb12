"""Two kinds of contract that import-linter does not bring along: no circles, and closed sets."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.domain.helpers import module_expressions_to_modules
from importlinter.domain.imports import ModuleExpression


def _packages(module: str) -> set[str]:
    """The packages around a module, which Python executes before it."""
    parts = module.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts))}


class NoCircles(Contract):
    """No module needs itself to be imported, directly or through others.

    An import of `a.b.c` also counts as one of `a` and `a.b`, unless the importer is in them.
    """

    root = fields.StringField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        root = str(self.root)
        modules = {root} | graph.find_descendants(root)
        needs = {
            module: {
                needed
                for imported in graph.find_modules_directly_imported_by(module) & modules - {module}
                for needed in {imported} | _packages(imported) - _packages(module) - {module}
            }
            for module in modules
        }
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            return ContractCheck(kept=False, metadata={"circle": error.args[1]})
        return ContractCheck(kept=True)

    def render_broken_contract(self, check: ContractCheck) -> None:
        output.print_error("One circle (each is imported by the one below it):")
        for module in check.metadata["circle"]:
            output.print_error(f"- {module}", bold=False)


class Closed(Contract):
    """A set of modules imports nothing but itself, the standard library and `packages`.

    Nothing outside the set imports `packages`.
    """

    modules = fields.SetField(subfield=fields.ModuleExpressionField())
    without = fields.SetField(subfield=fields.ModuleExpressionField(), required=False)
    packages = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        packages = {str(package) for package in cast(set[object], self.packages)}
        inside = _modules(graph, self.modules) - _modules(graph, self.without or set())
        allowed = inside | packages | set().union(*map(_packages, inside))
        imports = {
            (module, imported)
            for module in inside
            for imported in graph.find_modules_directly_imported_by(module) - allowed
            if imported not in sys.stdlib_module_names
        } | {
            (module, package)
            for package in packages & graph.modules
            for module in graph.find_modules_that_directly_import(package) - inside
        }
        return ContractCheck(kept=not imports, metadata={"imports": sorted(imports)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for module, imported in check.metadata["imports"]:
            output.print_error(f"- {module} imports {imported}", bold=False)


def _modules(graph: ImportGraph, expressions: object) -> set[str]:
    found = module_expressions_to_modules(
        graph, cast(set[ModuleExpression], expressions), as_packages=True, raise_if_unmatched=True
    )
    return {module.name for module in found}

"""Rules about where things are that no linter checks."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def imported(tree: ast.Module) -> set[str]:
    """The modules that a file imports, `a.b` for `from a import b` too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
            names.add(str(node.module))
    return names


def test_no_test_imports_another() -> None:
    wrong = {
        str(path.relative_to(TESTS)): modules
        for path in [*TESTS.glob("*.py"), *TESTS.glob("support/*.py")]
        if (
            modules := {
                module
                for module in imported(ast.parse(path.read_text()))
                if any(part.startswith("test_") for part in module.split(".")[:2])
            }
        )
    }
    assert wrong == {}


# -- plug-ins are known in one place -------------------------------------------------------------

PACKAGES = ("actors", "corpus", "fuzz", "generators")
KERNELS = TESTS.parent / "generators" / "kernels"
TARGETS = TESTS.parent / "actors" / "targets"


def sources(*, outside: Path | None = None) -> list[Path]:
    """Our files, less those in `outside`, if given, and the programs of the corpus."""
    data = [TESTS.parent / "corpus" / name for name in ("cases", "planted")]
    return [
        path
        for package in PACKAGES
        for path in sorted((TESTS.parent / package).rglob("*.py"))
        if not any(folder in path.parents for folder in (outside, *data))
    ]


def classes(folder: Path) -> set[str]:
    """Names of the classes that are defined below `folder`."""
    trees = [ast.parse(path.read_text()) for path in folder.rglob("*.py")]
    return {
        node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    }


def named(node: ast.AST) -> set[str]:
    """Names of variables, attributes and classes in an expression."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | {
        each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)
    }


def texts(node: ast.AST) -> set[str]:
    """The strings in an expression."""
    constants = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return {each.value for each in constants if isinstance(each.value, str)}


def type_tests(tree: ast.Module, types: set[str]) -> list[int]:
    """Lines with `isinstance(…, C)` or `case C(…)` for a class `C` of `types`."""
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]) if named(kinds) & types:
                lines.append(node.lineno)
            case ast.MatchClass(cls=cls) if named(cls) & types:
                lines.append(node.lineno)
    return lines


def name_tests(tree: ast.Module, variable: str, names: set[str]) -> list[int]:
    """Lines that compare or match `variable`, or an attribute or a key of that name, with one of
    `names`: strings, or tables of them."""
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [named(side) | texts(side) for side in (left, *others)]
                if any(variable in side for side in sides) and any(names & side for side in sides):
                    lines.append(node.lineno)
            case ast.Match(subject=subject, cases=cases) if variable in named(subject):
                lines += [case.pattern.lineno for case in cases if texts(case.pattern) & names]
    return lines


def found(outside: Path, types: set[str], variable: str, names: set[str]) -> list[str]:
    """Places outside a folder that test for what is in it, as "file:line"."""
    places = []
    for path in sources(outside=outside):
        tree = ast.parse(path.read_text())
        lines = {*type_tests(tree, types), *name_tests(tree, variable, names)}
        places += [f"{path.relative_to(TESTS.parent)}:{line}" for line in sorted(lines)]
    return places


def test_nothing_outside_kernels_tests_for_a_kernel() -> None:
    from attnfuzz.generators.kernels.registry import REGISTRY

    assert found(KERNELS, classes(KERNELS), "kind", set(REGISTRY)) == []


def test_nothing_outside_targets_tests_for_a_target() -> None:
    """What a target can do is asked of it: no table of targets is looked into, nor its class."""
    from attnfuzz.actors.targets.registry import TARGETS as NAMES

    types = {cls.__name__ for each in NAMES.values() for cls in type(each).__mro__}
    tables = {"CARDS", "DEVICES", "INTERPRETED", "NPUS", "TARGET_FOLDERS"}
    assert found(TARGETS, types - {"object"}, "target", {*NAMES, *tables}) == []


# -- everything public says what it is -----------------------------------------------------------

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(body: list[ast.stmt]) -> list[Definition]:
    """The classes and functions of a module or a class whose names have no leading underscore."""
    return [node for node in body if isinstance(node, Definition) and not node.name.startswith("_")]


def test_everything_public_has_a_docstring() -> None:
    """A method may go without where another class documents the method of that name: it overrides
    or implements that one."""
    trees = {str(path.relative_to(TESTS.parent)): ast.parse(path.read_text()) for path in sources()}
    every = [
        node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    documented = {
        each.name for cls in every for each in public(cls.body) if ast.get_docstring(each)
    }
    missing = []
    for path, tree in trees.items():
        top = public(tree.body)
        members = [
            each
            for cls in top
            if isinstance(cls, ast.ClassDef)
            for each in public(cls.body)
            if each.name not in documented
        ]
        missing += [
            f"{path}:{each.lineno} {each.name}"
            for each in [*top, *members]
            if ast.get_docstring(each) is None
        ]
    assert missing == []

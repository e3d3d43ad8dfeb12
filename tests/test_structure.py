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

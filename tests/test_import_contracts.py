"""The contracts of `make lint` about imports: what they let through, and what they do not."""

from __future__ import annotations

from typing import Any

import pytest
from grimp import ImportGraph
from importlinter import Contract

from tests.support.import_contracts import Closed, NoCircles


def kept(kind: type[Contract], *imports: str, **options: Any) -> bool:
    """Whether the contract is kept by imports as "a.b -> a.c"."""
    graph = ImportGraph()
    graph.add_module("a")
    graph.add_module("a.inside")
    for line in imports:
        importer, imported = line.split(" -> ")
        for module in (importer, imported):
            graph.add_module(module, is_squashed=module.partition(".")[0] != "a")
        graph.add_import(importer=importer, imported=imported)
    return kind("", {}, options).check(graph, verbose=False).kept


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        (["a.b -> a.c", "a.c -> a.d", "a.b -> a.d"], True),
        (["a.b -> a.c", "a.c -> a.d", "a.d -> a.b"], False),
        (["a.b -> a.b.c", "a.b.c -> a.b.d"], True),  # a package imports its own modules
        (["a.b -> a.b.c", "a.b.c -> a.d", "a.d -> a.b.e"], False),  # `a.b.e` executes `a.b`
    ],
)
def test_a_circle_breaks_the_contract(imports: list[str], expected: bool) -> None:
    assert kept(NoCircles, *imports, root="a") is expected


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        (["a.inside.b -> a.inside.c", "a.inside.b -> json", "a.inside.c -> torch"], True),
        (["a.inside.b -> a.outside", "a.inside.c -> torch"], False),
        (["a.inside.b -> pydantic", "a.inside.c -> torch"], False),
        (["a.inside.c -> torch", "a.outside -> torch"], False),
        (["a.inside.c -> torch", "a.inside.other -> pydantic"], True),
        (["a.inside.c -> torch", "a.inside.other -> torch"], False),
        (["a.inside.c -> torch", "a.inside.c -> a.inside.other"], False),
    ],
)
def test_what_is_closed_imports_itself_alone(imports: list[str], expected: bool) -> None:
    options = {"modules": ["a.inside"], "without": ["a.inside.other"], "packages": ["torch"]}
    always = ["a.inside.other -> json"]
    assert kept(Closed, *imports, *always, **options) is expected

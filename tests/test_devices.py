"""A rendered function makes its tensors where its arguments are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.generators.render.module import source
from attnfuzz.generators.strategies.shards import shard_programs
from attnfuzz.generators.strategies.swarm import PROFILES

CUDA = TARGETS["cuda"]
MADE_BY = tuple(
    f"torch.{name}"
    for name in ("arange", "empty", "eye", "full", "linspace", "ones", "tensor", "zeros")
)
RUN_THERE = ("attention", "run", "undropped", "probabilities")
TAKEN = CUDA.profiles({name: 1.0 for name in PROFILES if name != "function"})


def made(text: str) -> Iterator[ast.Call]:
    """The tensors that the functions and classes of a module make which run on the device, but for
    those of one number, which are taken from anywhere."""
    for top in ast.parse(text).body:
        if isinstance(top, ast.ClassDef) or getattr(top, "name", "") in RUN_THERE:
            for node in ast.walk(top):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in MADE_BY:
                    first = ast.unparse(node.args[0])
                    number = first == "()" or "tensor" in ast.unparse(node.func)
                    if not number or "[" in first:
                        yield node


@pytest.mark.parametrize("profile", TAKEN)
def test_what_a_function_makes_is_on_the_device_of_its_arguments(profile: str) -> None:
    for index in range(6):
        for program in shard_programs(3, index, 10, {profile: 1.0}, (), CUDA.place):
            if CUDA.unfit(program) is None:
                for call in made(source(program, "cuda")):
                    assert any(given.arg == "device" for given in call.keywords), ast.unparse(call)


def test_graphs_make_such_tensors() -> None:
    """Or the test above shows nothing of them."""
    texts = [
        source(program, "cuda")
        for index in range(6)
        for program in shard_programs(3, index, 10, {"graph": 1.0}, (), CUDA.place)
    ]
    assert sum(1 for text in texts for _ in made(text)) > 10

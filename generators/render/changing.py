"""What differs between calls beside their extents: a number, and what is in their tensors."""

from __future__ import annotations

from attnfuzz.generators.model.program import Program

Block = list[str]

REWRITE = """\
KEPT = []


def rewritten(*tensors):
    if not KEPT:
        KEPT.extend(tensors)
    with torch.no_grad():
        for kept, tensor in zip(KEPT, tensors):
            kept.copy_(tensor)
    return KEPT
"""


def further(program: Program) -> int:
    """How many calls are made only because their number is another."""
    return len(program.argument.values) - 1 if program.argument is not None else 0


def arguments(program: Program) -> list[float | int]:
    """The number of each call: the first value until the last call of `calls` is done, then each,
    and the last in all further draws."""
    argument = program.argument
    if argument is None:
        return []
    numbers = [argument.number(value) for value in argument.values]
    return [numbers[0]] * len(program.calls) + numbers + numbers[-1:] * program.draws


def functions() -> list[Block]:
    """What `rewriting` calls."""
    kept, function = REWRITE.rstrip().split("\n\n\n")
    return [kept.splitlines(), function.splitlines()]


def rewriting(names: list[str]) -> str:
    """The statement that writes what is in the tensors of those names into the first call's."""
    targets = f"{names[0]}," if len(names) == 1 else ", ".join(names)
    return f"{targets} = rewritten({', '.join(names)})"

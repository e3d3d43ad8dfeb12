"""The steps of a program's BlockMask one behind the other: their extents, text and meaning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from attnfuzz.generators.kernels.flex import write_order
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.flex.step import Place
from attnfuzz.generators.kernels.flex.steps import Step
from attnfuzz.generators.model.indices import Axis
from attnfuzz.generators.model.problem import Problem, lengths
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.captures import Extents
from attnfuzz.generators.render.sizes import commas


def extents_before(spec: BlockMaskSpec, call: Extents) -> Extents:
    """What the mask is for before its first step, if it is for `call` after the last."""
    return _extents(spec, call)[0]


def _extents(spec: BlockMaskSpec, call: Extents) -> list[Extents]:
    """What the mask is for before each step and after the last."""
    found = [call]
    for step in reversed(spec.steps):
        found.insert(0, step.before(found[0], spec.block_size))
    return found


def places(spec: BlockMaskSpec, call: Extents, device: str) -> Iterator[tuple[Step, Place]]:
    """Each step, and where it stands."""
    alone = frozenset[Axis]((*(() if spec.batch else ("b",)), *(() if spec.heads else ("h",))))
    numbers = Counter[str]()
    extents = pairwise(_extents(spec, call))
    for step, (before, after) in zip(spec.steps, extents, strict=True):
        numbers[step.kind] += 1
        yield step, Place(before, after, spec.block_size, alone, numbers[step.kind], device)
        alone |= step.alone()


def statements(spec: BlockMaskSpec, call: Extents, device: str) -> list[str]:
    """What makes the BlockMask for `call` of the `block_mask` that was created."""
    return [line for step, place in places(spec, call, device) for line in step.write(place)[0]]


def outside(spec: BlockMaskSpec, call: Extents, device: str) -> list[str]:
    """What follows the creation of a BlockMask in `inputs`: the steps that are not inside, and the
    look at its order of writes, before a step forgets it."""
    lines = list[str]()
    look, last = write_order.statements(spec)
    for step, place in () if spec.steps_inside else places(spec, call, device):
        if step.forgets:
            lines, look = lines + look, []
        lines += step.write(place)[0]
    return lines + look + last


def functions(spec: BlockMaskSpec, call: Extents) -> list[list[str]]:
    """What the statements call, each once."""
    found = []
    for step, place in places(spec, call, "cpu"):
        found += [function for function in step.write(place)[1] if function not in found]
    return found


def seen(spec: BlockMaskSpec, call: Extents, built: str) -> list[str]:
    """Statements that set the dense `mask` that is seen after the last step; `built` is an
    expression for what is seen before the first, which broadcasts to its extents."""
    lines = [f"mask = {built}.expand({commas(extents_before(spec, call))})"]
    for step, place in places(spec, call, "cpu"):
        further = step.seen(place)
        if len(further) == 1 and lines[-1].startswith("mask = ") and "mask[" in further[0]:
            lines[-1] += further[0].removeprefix("mask = mask")
        else:
            lines += further
    return lines


def too_long(spec: BlockMaskSpec, call: Extents) -> list[int]:
    """The steps that leave one block of queries where a call of these extents needs more."""
    ends = enumerate(zip(spec.steps, _extents(spec, call)[1:], strict=True))
    return [n for n, (step, end) in ends if step.too_long(int(end.q_idx), spec.block_size)]


def _widened_after_cropping(spec: BlockMaskSpec) -> Iterator[int]:
    """The steps that take whole blocks of which a part was cropped before: torch, which keeps
    counts of blocks alone, does not know what is left in them."""
    cropped = any(spec.built_for_extra)
    for number, step in enumerate(spec.steps):
        if cropped and step.widens:
            yield number
        cropped = cropped or step.crops


def problems(program: Program, spec: BlockMaskSpec) -> Iterator[Problem]:
    """What the steps need and is not so."""
    shape, key = program.shape, "kernel.block_mask.steps"
    call = Extents(shape.batch, shape.q_heads, shape.q_len, shape.kv_len)
    for number, (step, place) in enumerate(places(spec, call, "cpu")):
        for name, sentence in step.problems(place):
            yield Problem(f"{key}[{number}]{name}", sentence)
        if step.looks and (spec.steps_inside or spec.made != "outside"):
            yield Problem(f"{key}[{number}]", "expected one that compiled code can do")
    for number in _widened_after_cropping(spec):
        yield Problem(f"{key}[{number}].of", "expected whole blocks before the mask is cropped")
    for _, q_len, kv_len in lengths(program):
        if spec.steps and 0 in (q_len, kv_len):
            yield Problem(key, "expected none: there are no blocks in an empty sequence")
            return
        for number in too_long(spec, call._replace(q_idx=q_len, kv_idx=kv_len)):
            where = f"{key}[{number}].rows"
            yield Problem(where, f"expected no int: it leaves {spec.block_size[0]} queries")
            return

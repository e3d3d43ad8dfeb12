"""The standalone module that the sandbox runs; its names are a contract with the child."""

from __future__ import annotations

from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.parts import DIRTY_MEMORY, Block, assemble, parts
from attnfuzz.generators.render.scene import indented


def source(program: Program, device: str = "cpu") -> str:
    """The source of `program` (see "The source and the child that runs it" in ARCHITECTURE.md):
    a module that needs torch, and the kernel's package, and nothing else. `inputs` makes everything
    on the CPU; what `attention` makes is on `device`."""
    p = parts(program, device)
    blocks: list[Block] = []
    if program.dirty_memory:
        blocks.append(DIRTY_MEMORY)
    if program.calls:
        blocks.append([f"CALLS = {p.calls}"])
    blocks += [*p.mods, *p.cached_mods]
    arguments = "B, Lq, Lkv" if program.calls else ""
    returned = [*p.input_statements, f"return {', '.join(p.names)}"]
    blocks.append([f"def inputs({arguments}):", *indented(returned)])
    blocks += [*p.rope, *p.attention, *p.reference]
    if program.compile is not None:
        blocks.append(p.compiled)
    blocks.append(p.run.function(reference=True))
    return assemble(blocks, p)

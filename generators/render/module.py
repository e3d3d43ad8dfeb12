"""The standalone module that the sandbox runs; its names are a contract with the child."""

from __future__ import annotations

from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.fold import WIDTH
from attnfuzz.generators.render.modes import global_modes, runs
from attnfuzz.generators.render.parts import DIRTY_MEMORY, Block, assemble, parts
from attnfuzz.generators.render.scene import indented


def source(program: Program, device: str = "cpu", *, all_ranks: bool = False) -> str:
    """The source of `program` (see "The source and the child that runs it" in ARCHITECTURE.md):
    a module that needs torch, and the kernel's package, and nothing else. `inputs` makes everything
    on the CPU; what `attention` makes is on `device`. `all_ranks` as in `Scene`."""
    p = parts(program, device, all_ranks=all_ranks)
    blocks: list[Block] = []
    if program.dirty_memory:
        blocks.append(DIRTY_MEMORY)
    blocks.append(global_modes(program))
    calls = [f"CALLS = {p.calls}"] if program.calls else []
    calls += [f"SEEDS = {p.seeds}"] if program.draws else []
    blocks.append(calls + ([f"ARGUMENTS = {p.arguments}"] if program.argument else []))
    blocks += [*p.mods, *p.cached_mods, *p.rewriting]
    names = ", ".join(p.names) + "," * (len(p.names) == 1)
    names = f"({names})" if len(names) > WIDTH - len("    return ") else names
    returned = [*p.input_statements, f"return {names}"]
    blocks.append([f"def inputs({', '.join(p.parameters)}):", *indented(returned)])
    blocks += [*p.rope, *p.attention, *p.undropped, *p.reference]
    blocks += p.compiled
    blocks += [p.run.function(reference=True), *runs(program)]
    return assemble(blocks, p)

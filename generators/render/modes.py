"""The modes that a program is run in: what sets them, and what runs the function in them."""

from __future__ import annotations

from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.scene import indented

Block = list[str]


def global_modes(program: Program) -> Block:
    """Statements that set what holds for all of the script."""
    modes, lines = program.modes, []
    if modes.deterministic:
        lines.append("torch.use_deterministic_algorithms(True)")
    if modes.matmul_precision != "highest":
        lines.append(f'torch.set_float32_matmul_precision("{modes.matmul_precision}")')
    if modes.warn_for_unfused_kernels:
        lines.append("torch.nn.attention.WARN_FOR_UNFUSED_KERNELS = True")
    return lines


def default_dtype(program: Program) -> tuple[Block, Block]:
    """The statements around what is run with another default dtype."""
    dtype = program.modes.default_dtype
    if dtype == "float32":
        return [], []
    return [f"torch.set_default_dtype(torch.{dtype})"], ["torch.set_default_dtype(torch.float32)"]


def compiled_autograd(program: Program) -> str:
    """The context in which a backward pass is compiled, "" where it is not."""
    if not program.modes.compiled_autograd or program.compile is None:
        return ""
    compiler = f'torch.compile(backend="{program.compile.backend}")'
    return f"torch._dynamo.compiled_autograd._enable({compiler})"


def runner(program: Program, compiled: bool) -> str:
    """The name of the function that runs the attention function, as it is or `compiled`."""
    if compiled and compiled_autograd(program):
        return "run_compiled"
    return "run_attention" if default_dtype(program)[0] else "run"


def runs(program: Program, compiled: bool = True) -> list[Block]:
    """`run_attention` and `run_compiled`, which run the attention function as it is and compiled in
    their modes: `run` is what runs the reference. None where there are no such modes."""
    blocks, inner = [], "run"
    before, after = default_dtype(program)
    if before:
        body = [*before, "try:", "    return run(fn, args)", "finally:", *indented(after)]
        blocks.append(["def run_attention(fn, args):", *indented(body)])
        inner = "run_attention"
    if compiled and (context := compiled_autograd(program)):
        body = [f"with {context}:", f"    return {inner}(fn, args)"]
        blocks.append(["def run_compiled(fn, args):", *indented(body)])
    return blocks

"""A program's rendering in parts, from which the module and the reproduction are put together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from attnfuzz.generators.kernels.base import Inputs, KernelPlugin
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.methods.registry import learns_lse, method_of, outputs_of
from attnfuzz.generators.model.draws import drawn_seed
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render import changing, dropout
from attnfuzz.generators.render.attention import attention, selective_policy
from attnfuzz.generators.render.compiled import compiled, marks
from attnfuzz.generators.render.fold import fold
from attnfuzz.generators.render.imports import IMPORTED, imports
from attnfuzz.generators.render.masks import TREE_INTERVALS
from attnfuzz.generators.render.mesh import set_up
from attnfuzz.generators.render.quoting import literal
from attnfuzz.generators.render.reference import reference
from attnfuzz.generators.render.run import Run
from attnfuzz.generators.render.scene import Scene, indented
from attnfuzz.generators.render.surround import (
    ROPE,
    ROPE_INTERLEAVED,
    projected_inputs,
    projected_names,
    rope_inputs,
    rope_names,
    trained_names,
)
from attnfuzz.generators.render.tensors import attention_inputs, nan_statements

DIRTY_MEMORY = [
    'ctypes.CDLL("libc.so.6").mallopt(-6, 1)  # M_PERTURB: fresh memory is filled with 0xFE'
]
DIRTY_DEVICE_MEMORY = [
    "for size in (1 << 18, 1 << 24):",
    "    torch.full((size,), torch.nan)  # freed at once: fresh memory is NaN",
]
Block = list[str]


@dataclass(frozen=True)
class Parts:
    """The pieces of a rendering, each a list of lines or of functions."""

    program: Program
    scene: Scene
    plugin: KernelPlugin[Any]
    inputs: Inputs
    names: list[str]
    run: Run

    @property
    def mods(self) -> list[Block]:
        """mask_mod and score_mod, or their factories, and what makes a token tree's tables."""
        blocks = [TREE_INTERVALS.splitlines()] if self._uses("tree_intervals(") else []
        blocks += [mod.definition for mod in self.inputs.mods]
        blocks += self.inputs.functions
        return [*blocks, self.inputs.globals] if self.inputs.globals else blocks

    @property
    def cached_mods(self) -> list[Block]:
        """A cached function that makes closures and BlockMask, if calls reuse them."""
        if not self.caches:
            return []
        return [
            [
                "@functools.cache",
                f"def {self.cached_function}(B, Lq, Lkv):",
                *indented(self.inputs.fresh),
                f"    return {', '.join(self.inputs.fresh_names)}",
            ]
        ]

    @property
    def cached_function(self) -> str:
        """The name of the function in `cached_mods`."""
        return f"{'_and_'.join(self.inputs.fresh_names)}_for"

    @property
    def caches(self) -> bool:
        """Whether closures and BlockMask are made once for each shape: some call reuses them."""
        reuse = any(not call.fresh_mods for call in self.program.calls)
        return reuse and bool(self.inputs.fresh)

    @property
    def input_statements(self) -> Block:
        """What makes the arguments; q, k and v are drawn first, so that they do not depend on
        whether mods are made anew."""
        scene, p = self.scene, self.program
        lines = projected_inputs(scene) if p.surround.projections else attention_inputs(scene)
        lines += [*rope_inputs(scene), *self.inputs.statements]
        if self.caches:
            names = self.inputs.fresh_names
            lines.append(f"{', '.join(names)} = {self.cached_function}(B, Lq, Lkv)")
        else:
            lines += self.inputs.fresh
        if p.k.values == "nan_at_masked":
            lines += nan_statements(scene, self.inputs.seen)
        lines += marks(scene)
        if scene.scale_varies and p.argument is not None and p.argument.given == "tensor":
            # One in float32 would be rounded once more than the numbers it multiplies.
            exact = ", dtype=torch.float64" if p.q.dtype == "float64" else ""
            lines.append(f"scale = torch.tensor(scale{exact})")
        if p.in_place:
            lines.append(changing.rewriting(self.rewritten))
        if p.draws:
            return ["torch.manual_seed(seed)", *lines]
        seed = [f"torch.manual_seed({p.seed})"] if any("rand" in line for line in lines) else []
        return [*seed, *lines]

    @property
    def rope(self) -> list[Block]:
        """The function that applies RoPE, if the program uses it."""
        surround = self.program.surround
        text = ROPE_INTERLEAVED if surround.rope_interleaved else ROPE
        return [text.splitlines()] if surround.rope else []

    @property
    def parameter_names(self) -> list[str]:
        """What the attention function takes: the arguments, and what a loop over parts adds."""
        loop = self.run.loop
        return [*self.names, *(loop.further if loop is not None else ())]

    @property
    def attention(self) -> list[Block]:
        """The attention function, after the device mesh and the checkpoint policy that it may
        need."""
        blocks = attention(self.scene, self.plugin, self.inputs, self.parameter_names)
        if self.program.surround.checkpoint == "selective":
            blocks.insert(0, selective_policy(self.scene, self.plugin))
        mesh = set_up(self.scene)
        return [mesh, *blocks] if mesh else blocks

    @property
    def reference(self) -> list[Block]:
        """The functions that make up `reference(*names)`."""
        return reference(self.scene, self.plugin, self.inputs, self.names)

    @property
    def undropped(self) -> list[Block]:
        """The functions with which `run` completes what dropout has left out, if there is any."""
        if not self.run.drops:
            return []
        return dropout.functions(self.scene, self.plugin, self.inputs, self.names)

    @property
    def calls(self) -> list[tuple[int, int, int]]:
        """B, Lq and Lkv of every call, the first call's in front and those with other numbers
        last."""
        p, shape = self.program, self.program.shape
        first = (shape.batch, shape.q_len, shape.kv_len)
        every = [first, *((c.batch, c.q_len, c.kv_len) for c in p.calls)]
        return every + every[-1:] * (changing.further(p) + p.draws)

    @property
    def seeds(self) -> list[int]:
        """The seed of every call."""
        p = self.program
        same = [p.seed] * (len(p.calls) + changing.further(p))
        return same + [drawn_seed(p, draw) for draw in range(p.draws + 1)]

    @property
    def arguments(self) -> list[float | int]:
        """The number that each call has for `Program.argument`, if there is one."""
        return changing.arguments(self.program)

    @property
    def parameters(self) -> list[str]:
        """What differs from call to call, by name."""
        p = self.program
        extents = ["B", "Lq", "Lkv"] * bool(p.calls)
        return extents + ["seed"] * bool(p.draws) + ([p.argument.what] if p.argument else [])

    @property
    def each(self) -> list[Any]:
        """What `parameters` are in each call: a tuple where there are several."""
        p = self.program
        columns: list[list[Any]] = [list(column) for column in zip(*self.calls, strict=True)]
        columns = columns if p.calls else []
        columns += ([self.seeds] if p.draws else []) + ([self.arguments] if p.argument else [])
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    @property
    def rewritten(self) -> list[str]:
        """The arguments that further draws are written into: all that are tensors."""
        made = {*self.inputs.fresh_names, "scale", "number"}
        return [name for name in self.names if name not in made]

    @property
    def rewriting(self) -> list[Block]:
        """The function that writes further draws into the tensors of the first call."""
        return changing.functions() if self.program.in_place else []

    @property
    def compiled(self) -> list[Block]:
        """What defines `compiled`; nothing where the attention function stays eager."""
        return compiled(self.scene, self.parameter_names)

    def _uses(self, text: str) -> bool:
        return any(text in line for line in [*self.inputs.statements, *self.inputs.fresh])


NPU = "import torch_npu"
"""Without it torch knows no device "npu"."""


def parts(
    program: Program,
    device: str = "cpu",
    inputs_device: str = "cpu",
    times: str = "",
    all_ranks: bool = False,
    judged: bool = True,
) -> Parts:
    """The parts of a valid program's rendering; see `Scene`. `judged`: its numbers are compared
    with those of the reference."""
    method = method_of(program)
    program = method.written(program) if method is not None else program
    scene = Scene(program, device, inputs_device, times, all_ranks)
    plugin = plugin_of(program)
    inputs = plugin.inputs(scene)
    if not judged:
        inputs.without_meaning()
    if device == "npu" and NPU not in inputs.imports:
        inputs.imports.append(NPU)
    main = list(plugin.takes(program.kernel))
    if program.surround.projections:
        main = projected_names(scene)
    names = [*main, *rope_names(scene), *inputs.arguments, *["scale"] * scene.scale_varies]
    wrt = [name for name in names if name in trained_names(scene) or name in inputs.learnable]
    drops = bool(plugin.dropout_p(program.kernel))
    outputs = ("out", "excess") if drops else outputs_of(scene)
    learned = tuple(name for name in outputs if name != "lse" or learns_lse(program))
    run = Run(scene, names, wrt, outputs, learned, drops, plugin.loop(program, device))
    return Parts(program, scene, plugin, inputs, names, run)


def assemble(blocks: list[Block], parts: Parts) -> str:
    """The blocks as a module: imports found, text from outside quoted, long lines folded, functions
    apart; what the kernel needs set comes first."""
    inputs, quoting = parts.inputs, parts.scene.quoting
    blocks = [inputs.set_up, *blocks]
    text = "\n".join(line for block in blocks for line in block)
    lines: list[str] = []
    if inputs.environment:
        pairs = [(literal(name), literal(value)) for name, value in inputs.environment.items()]
        lines += ["import os", "", *(f"os.environ[{name}] = {v}" for name, v in pairs), ""]
    lines += imports(text, [*inputs.imports, *quoting.imports(text, IMPORTED)])
    previous_is_function = False
    for block in filter(None, blocks):
        is_function = block[0].startswith(("def ", "class ", "@"))
        gap = 2 if is_function or previous_is_function else 1
        lines += [""] * (gap if lines else 0)
        for line in block:
            lines += fold(quoting.fill(line))
        previous_is_function = is_function
    return "\n".join(lines) + "\n"


def without_return(body: Block) -> Block:
    """The statements of `run` at top level: what is called, not what is returned."""
    kept = []
    for line in body:
        call = re.match(r'(\s*)return \{"out": (.*?)(?:, "\w+": .*)?\}$', line)
        if call and not re.match(r"out\b", call.group(2)):
            kept.append(f"{call.group(1)}{call.group(2)}")
        elif not line.lstrip().startswith("return "):
            kept.append(line)
    return kept

"""Programs put together part by part, so that every choice fits those before it.

`Composed` draws the programs of a kernel that takes masks, layouts, transforms and the rest as they
come. What differs from kernel to kernel are its attributes and the methods named `fit_…`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attnfuzz.generators.kernels.base import KernelPlugin
from attnfuzz.generators.kernels.registry import REGISTRY
from attnfuzz.generators.kernels.specs import Kernel
from attnfuzz.generators.model.masks import Causal, Mask, every_row_sees
from attnfuzz.generators.model.program import Call, Input, Mesh, Program, Shape, Surround, Training
from attnfuzz.generators.model.scores import ScoreMod
from attnfuzz.generators.model.validity import no_gradient, problems
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.kernel import Drawing, Parts
from attnfuzz.generators.strategies.layers import Layers
from attnfuzz.generators.strategies.placing import Placed, placed

Dtypes = tuple[Any, Any, Any]


@dataclass(frozen=True)
class Setting:
    """What a kernel's choices depend on: the program's shape and mask, whether it has a score
    modification, its compile back-end ("none": eager), whether it trains, and whether torch may
    refuse it by design."""

    shape: Shape
    mask: Mask | None
    scored: bool
    backend: str
    training: bool
    refused: bool


class Composed(Drawing):
    """Programs of the kernel `kind`. A percent of them, and four of those for dynamo and
    AOTAutograd alone, require one of `refused`, which torch refuses by design. `trains` and
    `transforms`: torch has its gradients, and transforms of it. Of the programs that do not train,
    15 in `without_checkpoint` + 15 have a checkpoint."""

    kind: ClassVar[str]
    refused: ClassVar[tuple[str, ...]]
    trains: bool = True
    transforms: bool = True
    without_checkpoint: ClassVar[int] = 300

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        has, swarm = self.has, self.swarm
        self.gpu = swarm.place.gpu
        self.plugin: KernelPlugin[Any] = REGISTRY[self.kind]
        self.is_refused = {
            cheap: one_in(12 if cheap else 40) if has("refused") else st.just(False)
            for cheap in (True, False)
        }
        self.refusal = st.sampled_from(self.refused)
        self.nan_at_masked = one_in(12) if has("input.values") else st.just(False)
        self.causal: Any = ((1, "causal"),) if has("mask.causal") else ()
        self.has_mask: SearchStrategy[str] = weighted((4, "none"), *self.causal, (3, "tree"))
        self.transform: SearchStrategy[str] = weighted((2, "vmap"), (2, "grad"), (1, "jvp"))
        self.layers = Layers(swarm)
        self.checkpoint = {
            True: self.running.checkpoints(50),
            False: self.running.checkpoints(self.without_checkpoint),
        }

    # What kernels differ in.

    @abstractmethod
    def kernel(self, draw: Draw, at: Setting) -> Kernel:
        """The kernel's own choices."""

    def score_mod(self, draw: Draw, shape: Shape, trains: bool) -> ScoreMod | None:
        """A score modification, if the kernel takes one."""
        return None

    def learned_score_mod(
        self, draw: Draw, shape: Shape, backend: str, trains: bool
    ) -> ScoreMod | None:
        """Now and then, one that captures a table with a gradient: all that has one, unless
        `trains`."""
        return None

    def double_backward(self, backend: str) -> bool:
        """Whether torch has second derivatives with that compile back-end, as far as is known."""
        return False

    def float64(self, backend: str) -> bool:
        """Whether it takes float64 with that compile back-end."""
        return True

    def fit_shape(self, draw: Draw, shape: Shape) -> Shape:
        """`shape`, within what the kernel takes."""
        return shape

    def fit_forward(self, shape: Shape) -> Shape:
        """`shape`, for a program that does not train."""
        return shape

    def fit_dtypes(self, draw: Draw, dtypes: Dtypes) -> Dtypes:
        """`dtypes` without autocast, within what the kernel takes."""
        return dtypes

    def fit_calls(self, kernel: Any, calls: tuple[Call, ...]) -> tuple[Call, ...]:
        """Those of `calls` that the kernel takes."""
        return calls

    def fit_gradient_of_v(self, kernel: Any) -> Kernel:
        """`kernel` where v alone gets a gradient: without results that do not depend on it."""
        return kernel

    def fit_integration(self, kernel: Any) -> Kernel:
        """`kernel` where it is reached through an operator and the like."""
        return kernel

    # Drawing.

    def draw(self, draw: Draw, backend: str) -> Program:
        # What eager torch refuses is of use where dynamo or AOTAutograd may accept it.
        cheap = backend in ("eager", "aot_eager")
        refusal = draw(self.refusal) if draw(self.is_refused[cheap]) else None
        shape = self.fit_shape(draw, self.shapes.draw(draw))
        training, transform = self._derivatives(draw, backend, refusal)
        if training is None:
            shape = self.fit_forward(shape)
        mask = self._mask(draw, shape)
        score_mod = None
        if transform == "none" and refusal is None:
            score_mod = self.learned_score_mod(draw, shape, backend, training is not None)
        if score_mod is not None:
            training = training or Training(wrt=())
        else:
            score_mod = self.score_mod(draw, shape, training is not None)
        setting = Setting(
            shape=shape,
            mask=mask,
            scored=score_mod is not None,
            backend=backend,
            training=training is not None,
            refused=refusal in ("backend", "lse"),
        )
        p = Program(
            kernel=self.kernel(draw, setting),
            shape=shape,
            mask=mask,
            score_mod=score_mod,
            training=training,
            transform=transform,
            autocast=draw(self.running.autocast),
        )
        p = self._with_inputs(draw, p, backend, refusal)
        p = self._run(draw, p, backend)
        if training is not None and no_gradient(p):
            p = replace(p, training=replace(training, wrt=("v",)))
            p = replace(p, kernel=self.fit_gradient_of_v(p.kernel))
        p = self._integrated(draw, p) if self.running.integrates else p
        return self.layers.draw(draw, p)

    def _with_inputs(self, draw: Draw, p: Program, backend: str, refusal: str | None) -> Program:
        """The program with q, k and v, what is around it, and its mesh."""
        dtypes = self._dtypes(draw, backend, refusal, p.autocast)
        if p.training is not None and not p.training.wrt and "float64" in dtypes:
            dtypes = ("float32", "float32", "float32")  # as what is learned is
        if p.autocast is None:
            dtypes = self.fit_dtypes(draw, dtypes)
        lie = placed(draw, self.inputs, p.shape, dtypes)
        surround = self._surround(draw, p, lie)
        p = replace(p, packed=lie.packed, surround=surround)
        values = self._values(draw, p, dtypes)
        mesh = self._mesh(draw, p, backend, refusal)
        if mesh is not None:
            p = replace(p, mesh=mesh, kernel=self.plugin.distributed(p.kernel))
        q, k, v = (
            Input(dtype=dtype, layout=layout, values=name)
            for dtype, layout, name in zip(dtypes, lie.layouts, values, strict=True)
        )
        return replace(p, q=q, k=k, v=v)

    def _run(self, draw: Draw, p: Program, backend: str) -> Program:
        """The program with how it is compiled and called."""
        compiled = self.running.compile(draw, backend)
        static = compiled is not None and compiled.dynamic is False
        calls = self.running.further_calls(draw, p.shape, p.packed == "qkv", static)
        forward = p.training is None and p.transform in ("none", "vmap")
        return replace(
            p,
            compile=compiled,
            calls=self.fit_calls(p.kernel, calls),
            grad_mode=self._grad_mode(draw, p.mesh) if forward else "default",
            dirty_memory=draw(self.running.dirty),
        )

    def _mask(self, draw: Draw, shape: Shape) -> Mask | None:
        """No mask, the plain causal one (SDPA has an argument for it), or any."""
        which = draw(self.has_mask)
        if which == "none":
            return None
        return Causal() if which == "causal" else self.masks.draw(draw, shape)

    def _derivatives(
        self, draw: Draw, backend: str, refusal: str | None
    ) -> tuple[Training | None, Any]:
        """Training or a transform, where torch has one for that kernel at the place."""
        if refusal == "forward_ad":
            return None, "jvp"
        running = self.running
        chance = running.transforms if backend == "none" else running.transforms_compiled
        if refusal == "transform" or (self.transforms and draw(chance)):
            return None, draw(self.transform)
        trains = refusal in ("training", "double") or (self.trains and draw(running.trains))
        if not trains:
            return None, "none"
        training = running.training(draw, self.double_backward(backend))
        if refusal == "double":
            training = Training(wrt=training.wrt, grad_layout=training.grad_layout, double=True)
        return training, "none"

    def _dtypes(
        self, draw: Draw, backend: str, refusal: str | None, autocast: str | None
    ) -> Dtypes:
        """One dtype for all; mixed only where autocast makes them one, or to be refused."""
        inputs = self.inputs
        if refusal == "double_precision":
            return ("float64", "float64", "float64")
        if refusal == "mixed" or (autocast is not None and draw(one_in(3))):
            return draw(inputs.mixed)
        if autocast is not None or not self.float64(backend):
            return draw(inputs.dtypes)
        return draw(inputs.dtypes_and_double)

    def _surround(self, draw: Draw, p: Program, lie: Placed) -> Surround:
        alone = lie.alone or p.transform != "none"
        moved = not self.plugin.keeps_layout(p.kernel)
        surround = self.running.draw_surround(draw, p.shape, alone, moved)
        if p.transform == "none" and not (p.training is not None and p.training.double):
            chance = self.checkpoint[p.training is not None]
            surround = replace(surround, checkpoint=draw(chance))
        return surround

    def _values(self, draw: Draw, p: Program, dtypes: Dtypes) -> Dtypes:
        q, k, v = self.inputs.draw_values(draw, "float16" in dtypes)
        if p.packed == "qkv" or p.surround.projections:
            return q, q, q
        if p.packed == "kv":
            return q, v, v
        selects = p.mask is not None and self.plugin.selects_masked(p.kernel)
        forward = p.training is None and p.transform == "none"
        if selects and forward and draw(self.nan_at_masked):
            k = "nan_at_masked"
        elif forward and draw(self.inputs.has_not_finite):
            name, values = draw(self.inputs.not_finite)
            if not selects and p.mask is not None:  # of all, a query that is NaN has one meaning
                return ("nan" if every_row_sees(p.mask) else q), k, v
            drawn = {"q": q, "k": k, "v": v} | {name: values}
            return drawn["q"], drawn["k"], drawn["v"]
        return q, k, v

    def _grad_mode(self, draw: Draw, mesh: Mesh | None) -> Any:
        """Fake DTensors are not what real ones are in inference mode."""
        mode = draw(self.running.grad_mode)
        fake = mesh is not None and self.running.one_rank
        return "no_grad" if fake and mode == "inference_mode" else mode

    def _mesh(self, draw: Draw, p: Program, backend: str, refusal: str | None) -> Mesh | None:
        plain = not p.surround.projections and p.surround.checkpoint == "none"
        if not plain or p.autocast is not None or p.transform != "none":
            return None
        if not self.plugin.distributable(p.kernel):
            return None
        plain_mask = refusal == "plain_mask"
        alone = self.gpu and not self.running.one_rank
        if not plain_mask and (alone or not draw(self.running.has_mesh)):
            return None
        mesh = self.running.mesh(draw, backend, p.training is not None)
        return replace(mesh, plain_mask=plain_mask)

    def _integrated(self, draw: Draw, p: Program) -> Program:
        """The program with its kernel behind something, and without what cannot be there."""
        style = draw(self.running.integration)
        p = replace(p, transform="none", autocast=None, mesh=None)
        p = replace(p, k=replace(p.k, dtype=p.q.dtype), v=replace(p.v, dtype=p.q.dtype))
        p = replace(p, kernel=self.fit_integration(p.kernel))
        if p.training is not None:
            p = replace(p, training=replace(p.training, double=False))
            p = replace(p, shape=replace(p.shape, kv_heads=p.shape.q_heads))
        compiled = p.compile
        if style == "disable" and compiled is not None:
            compiled = replace(compiled, fullgraph=False)
        surround = replace(p.surround, integration=style)
        integrated = replace(p, surround=surround, compile=compiled)
        return p if problems(integrated) else integrated

"""Whole programs, put together so that every choice fits those before it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from attnfuzz.generators.kernels.specs import Flex, Function, Handwritten, Kernel, Sdpa
from attnfuzz.generators.model.masks import Causal, Mask
from attnfuzz.generators.model.program import Input, Layout, Program, Shape, Surround, Training
from attnfuzz.generators.model.scores import ScoreMod
from attnfuzz.generators.model.validity import no_gradient, problems
from attnfuzz.generators.strategies.draws import Draw, allowed, one_in, weighted
from attnfuzz.generators.strategies.expressions import Expressions
from attnfuzz.generators.strategies.flash_attn import FlashAttnPrograms
from attnfuzz.generators.strategies.inputs import BSHD, Inputs, layouts
from attnfuzz.generators.strategies.kernels import Kernels, Setting
from attnfuzz.generators.strategies.masks import Masks
from attnfuzz.generators.strategies.npu_fusion_attention import NpuFusionAttentionPrograms
from attnfuzz.generators.strategies.running import Running
from attnfuzz.generators.strategies.scores import Scores
from attnfuzz.generators.strategies.shapes import Shapes
from attnfuzz.generators.strategies.swarm import EVERYTHING, PROFILES, Swarm, UserFunction

REFUSALS: dict[str, tuple[str, ...]] = {
    "function": (),
    "sdpa": ("backend", "backend", "mixed", "double", "forward_ad", "plain_mask"),
    "flex": ("training", "mixed", "double_precision", "lse", "transform"),
    "handwritten": ("mixed", "plain_mask"),
}
"""What torch refuses by design, by kernel; generated for a percent of the programs."""


class Programs:
    """Programs with the features of a swarm."""

    def __init__(self, swarm: Swarm) -> None:
        profile = PROFILES[swarm.profile]
        self.has = swarm.has
        self.gpu = swarm.place.gpu
        enabled = [kernel for kernel, _ in profile.kernels if swarm.has(f"kernel.{kernel}")]
        kernels = [(weight, kernel) for kernel, weight in profile.kernels]
        self.kernel = weighted(*(allowed(kernels, enabled) or kernels))
        self.backend = weighted(
            *((n, name) for name, n in profile.backends if name in swarm.place.backends)
        )
        self.refusals = one_in(40) if swarm.has("refused") else st.just(False)
        self.refusal = {kernel: st.sampled_from(kinds) for kernel, kinds in REFUSALS.items()}
        self.dtypes_of = {one: st.sampled_from(one.dtypes) for one in swarm.functions}
        self.functions = st.sampled_from(swarm.functions) if swarm.functions else st.nothing()
        self.shapes = Shapes(swarm)
        self.inputs = Inputs(swarm)
        self.masks = Masks(swarm, Expressions(swarm))
        self.scores = Scores(swarm, self.masks)
        self.running = Running(swarm, self.shapes)
        self.npu_fusion_attention = NpuFusionAttentionPrograms(
            self.shapes, self.inputs, self.masks, self.running
        )
        self.kernels = Kernels(swarm)
        self.flash_attn = FlashAttnPrograms(self.shapes, self.running)
        causal = ((1, "causal"),) if swarm.has("mask.causal") else ()
        self.has_mask = {
            "sdpa": weighted((2, "none"), (3, "causal"), (3, "tree")),
            "flex": weighted((1, "none"), *causal, (4, "tree")),
            "handwritten": weighted((4, "none"), *causal, (3, "tree")),
        }
        self.has_score = weighted((4, False), (5, True))
        self.nan_at_masked = one_in(12) if swarm.has("input.values") else st.just(False)
        self.transform = {
            "sdpa": weighted((2, "vmap"), (2, "grad")),
            "flex": weighted((1, "vmap"), (1, "grad"), (1, "jvp")),
            "handwritten": weighted((2, "vmap"), (2, "grad"), (1, "jvp")),
        }

    def draw(self, draw: Draw) -> Program:
        kind = draw(self.kernel)
        backend = draw(self.backend)
        if kind == "function":
            return self._calling(draw, backend, draw(self.functions))
        if kind == "flash_attn":
            return self.flash_attn.draw(draw, backend)
        if kind == "npu_fusion_attention":
            return self.npu_fusion_attention.draw(draw, backend)
        refusal = draw(self.refusal[kind]) if draw(self.refusals) else None
        shape = self.shapes.draw(draw)
        if kind == "flex":
            shape = self.shapes.for_flex(shape)
        training, transform = self._derivatives(draw, kind, backend, refusal)
        if kind == "flex" and training is None:
            shape = self.shapes.forward_only(shape)
        mask = self._mask(draw, kind, shape)
        score_mod: ScoreMod | None = None
        if kind == "flex" and draw(self.has_score):
            score_mod = self.scores.draw(draw, shape, learnable=training is not None)
        setting = Setting(
            shape=shape,
            mask=mask,
            scored=score_mod is not None,
            backend=backend,
            training=training is not None,
            refused=refusal in ("backend", "lse"),
        )
        kernel: Kernel = getattr(self.kernels, kind)(draw, setting)
        autocast = draw(self.running.autocast)
        dtypes = self._dtypes(draw, kind, backend, refusal, autocast)
        if kind == "flex" and autocast is None:
            dtypes = self.inputs.for_flex(draw, dtypes)
        placed = self._placed(draw, shape, dtypes)
        alone = placed.pop("alone") or transform != "none"
        moved = isinstance(kernel, Handwritten) and kernel.out_layout != "bhld"
        surround = self.running.draw_surround(draw, shape, alone, moved)
        if transform == "none" and not (training is not None and training.double):
            chance = self.running.checkpointed[kind if training is None else "training"]
            surround = replace(surround, checkpoint=draw(chance))
        packed = placed.pop("packed")
        names = self._values(draw, dtypes, packed, kernel, mask, training, transform, surround)
        mesh = None
        if autocast is None and transform == "none" and _may_be_distributed(kernel, surround):
            plain_mask = refusal == "plain_mask"
            if plain_mask or (not self.gpu and draw(self.running.has_mesh)):
                mesh = self.running.mesh(draw, backend, training is not None)
                mesh = replace(mesh, plain_mask=plain_mask)
                if isinstance(kernel, Sdpa):  # DTensor has no rule for a CPU's fused kernel
                    kernel = replace(kernel, backend="math")
        q, k, v = (
            Input(dtype=dtype, layout=layout, values=name)
            for dtype, layout, name in zip(dtypes, placed["layouts"], names, strict=True)
        )
        compiled = self.running.compile(draw, backend)
        static = compiled is not None and compiled.dynamic is False
        calls = self.running.further_calls(draw, shape, packed == "qkv", static)
        if isinstance(kernel, Handwritten) and kernel.softmax == "exp_sum":
            calls = tuple(call for call in calls if call.kv_len)
        forward = training is None and transform in ("none", "vmap")
        drawn = Program(
            kernel=kernel,
            shape=shape,
            q=q,
            k=k,
            v=v,
            packed=packed,
            mask=mask,
            score_mod=score_mod,
            surround=surround,
            mesh=mesh,
            compile=compiled,
            calls=calls,
            training=training,
            transform=transform,
            grad_mode=draw(self.running.grad_mode) if forward else "default",
            autocast=autocast,
            dirty_memory=draw(self.running.dirty),
        )
        if training is not None and no_gradient(drawn):
            drawn = replace(drawn, training=replace(training, wrt=("v",)))
            if isinstance(kernel, Flex):  # whose log-sum-exp does not depend on v
                drawn = replace(drawn, kernel=replace(kernel, return_lse=False))
        return self._integrated(draw, drawn) if self.running.integrates else drawn

    def _integrated(self, draw: Draw, p: Program) -> Program:
        """The program with its kernel behind something, and without what cannot be there."""
        style = draw(self.running.integration)
        p = replace(p, transform="none", autocast=None, mesh=None)
        p = replace(p, k=replace(p.k, dtype=p.q.dtype), v=replace(p.v, dtype=p.q.dtype))
        if isinstance(p.kernel, Handwritten):
            p = replace(p, kernel=replace(p.kernel, out_layout="bhld"))
        elif isinstance(p.kernel, Sdpa):
            p = replace(p, kernel=replace(p.kernel, mask_requires_grad=False))
        if p.training is not None:
            p = replace(p, training=replace(p.training, double=False))
            p = replace(p, shape=replace(p.shape, kv_heads=p.shape.q_heads))
        compiled = p.compile
        if style == "disable" and compiled is not None:
            compiled = replace(compiled, fullgraph=False)
        surround = replace(p.surround, integration=style)
        integrated = replace(p, surround=surround, compile=compiled)
        return p if problems(integrated) else integrated

    def _calling(self, draw: Draw, backend: str, function: UserFunction) -> Program:
        """A program that calls a user's own function, within what it says that it takes."""
        shape = self.shapes.draw(draw)
        shape = replace(shape, kv_heads=shape.q_heads, v_head_dim=None)
        if not function.cross:
            shape = replace(shape, q_len=shape.kv_len)
        shape = self.shapes.affordable(shape)
        training = None
        if function.training and draw(self.running.trains):
            training = self.running.training(draw, False)
        dtype = draw(self.dtypes_of[function])
        placed = self._placed(draw, shape, (dtype, dtype, dtype))
        packed = placed["packed"]
        compiled = self.running.compile(draw, backend)
        static = compiled is not None and compiled.dynamic is False
        q, k, v = (Input(dtype=dtype, layout=layout) for layout in placed["layouts"])
        return Program(
            kernel=Function(target=function.target),
            shape=shape,
            q=q,
            k=k,
            v=v,
            packed=packed,
            mask=Causal() if function.causal else None,
            surround=self.running.draw_surround(draw, shape, placed["alone"], moved=False),
            compile=compiled,
            calls=self.running.further_calls(
                draw, shape, packed == "qkv" or not function.cross, static
            ),
            training=training,
            dirty_memory=draw(self.running.dirty),
        )

    def _mask(self, draw: Draw, kind: str, shape: Shape) -> Mask | None:
        """No mask, the plain causal one (SDPA has an argument for it), or any."""
        which = draw(self.has_mask[kind])
        if which == "none":
            return None
        return Causal() if which == "causal" else self.masks.draw(draw, shape)

    def _derivatives(
        self, draw: Draw, kind: str, backend: str, refusal: str | None
    ) -> tuple[Training | None, Any]:
        """Training or a transform, where torch has one for that kernel at the place."""
        if refusal == "forward_ad":
            return None, "jvp"
        running = self.running
        chance = running.transforms if backend == "none" else running.transforms_compiled
        if refusal == "transform" or (kind != "flex" and draw(chance)):
            return None, draw(self.transform[kind])
        trains = refusal in ("training", "double") or (
            (kind != "flex" or self.gpu) and draw(self.running.trains)
        )
        if not trains:
            return None, "none"
        can_double = kind == "handwritten" and backend in ("none", "eager")
        training = self.running.training(draw, can_double)
        if refusal == "double":
            training = Training(wrt=training.wrt, grad_layout=training.grad_layout, double=True)
        return training, "none"

    def _dtypes(
        self, draw: Draw, kind: str, backend: str, refusal: str | None, autocast: str | None
    ) -> tuple[Any, Any, Any]:
        """One dtype for all; mixed only where autocast makes them one, or to be refused."""
        inputs = self.inputs
        if refusal == "double_precision":
            return ("float64", "float64", "float64")
        if refusal == "mixed" or (autocast is not None and draw(one_in(3))):
            return draw(inputs.mixed)
        if autocast is not None or (kind == "flex" and backend == "inductor"):
            return draw(inputs.dtypes)
        return draw(inputs.dtypes_and_double)

    def _placed(self, draw: Draw, shape: Shape, dtypes: tuple[Any, Any, Any]) -> dict[str, Any]:
        """Layouts of q, k, v, and which are packed. `alone`: they differ, or do not lie plainly, so
        that projections cannot make them."""
        placing = draw(self.inputs.placing)
        alike = len(set(dtypes)) == 1
        plain = Layout()
        packable = shape.v_head_dim in (None, shape.head_dim) and dtypes[1] == dtypes[2]
        if placing == "qkv" and packable and alike and shape.q_len == shape.kv_len:
            order = draw(self.inputs.q_order)
            return {"packed": "qkv", "layouts": (order, plain, plain), "alone": True}
        if placing in ("kv", "qkv") and packable:
            return {"packed": "kv", "layouts": (draw(layouts()), plain, plain), "alone": True}
        if placing == "all_bshd":
            return {"packed": "none", "layouts": (BSHD,) * 3, "alone": True}
        if placing == "each":
            each = tuple(draw(layouts()) for _ in range(3))
            return {"packed": "none", "layouts": each, "alone": True}
        return {"packed": "none", "layouts": (plain,) * 3, "alone": not alike}

    def _values(
        self,
        draw: Draw,
        dtypes: tuple[Any, Any, Any],
        packed: str,
        kernel: Kernel,
        mask: Mask | None,
        training: Training | None,
        transform: str,
        surround: Surround,
    ) -> tuple[Any, Any, Any]:
        half = "float16" in dtypes
        q, k, v = self.inputs.draw_values(draw, half)
        if packed == "qkv" or surround.projections:
            return q, q, q
        if packed == "kv":
            return q, v, v
        selects = isinstance(kernel, Flex) or (
            isinstance(kernel, Handwritten) and kernel.masking != "add"
        )
        forward = training is None and transform == "none"
        if mask is not None and selects and forward and draw(self.nan_at_masked):
            k = "nan_at_masked"
        return q, k, v


def _may_be_distributed(kernel: Kernel, surround: Surround) -> bool:
    plain = not surround.projections and surround.checkpoint == "none"
    by_hand = isinstance(kernel, Handwritten) and kernel.product != "baddbmm"
    return plain and (by_hand or isinstance(kernel, Sdpa))


@st.composite
def _programs(draw: DrawFn, parts: Programs) -> Program:
    return parts.draw(draw)


@lru_cache(maxsize=64)
def programs(swarm: Swarm = EVERYTHING) -> SearchStrategy[Program]:
    """Valid attention programs with the features of `swarm`, all of them by default. Their seed is
    0; set it with `dataclasses.replace` for other values."""
    return _programs(Programs(swarm))

"""Swarms: which features the programs of one shard may have, and how its profile weighs them.

A program with every feature at once stops at the first failure, which hides the others. A swarm
enables a random subset (swarm testing: Groce et al., ISSTA 2012), so that shards differ in what
they combine, and every pair of features meets without the others often enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal, get_args

from pydantic import Field

from attnfuzz.generators.kernels.function.spec import Target
from attnfuzz.generators.model.indices import STRICT
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.model.program import FloatDtype
from attnfuzz.generators.model.scores import ScoreMod
from attnfuzz.generators.strategies.seeds import derive


def _kinds(union: object) -> tuple[str, ...]:
    return tuple(node.kind for node in get_args(get_args(union)[0]))


MASKS = tuple(f"mask.{kind}" for kind in _kinds(Mask))
SCORES = tuple(f"score.{kind}" for kind in _kinds(ScoreMod) if kind != "score")
KERNELS = ("kernel.sdpa", "kernel.flex", "kernel.handwritten")
OTHERS = (
    "shape.gqa", "shape.ragged", "shape.cross", "shape.empty", "shape.long", "shape.odd_head_dim",
    "shape.v_head_dim", "input.layout", "input.packed", "input.low_precision", "input.float64",
    "input.values", "table.unit", "table.chained", "table.dtype", "table.scalar",
    "sdpa.backend", "sdpa.mask_gradient", "any.scale", "flex.block_size", "flex.adjusted",
    "flex.spare_batch", "flex.inside", "flex.compiled_mask", "flex.options", "flex.lse",
    "flex.mods", "flex.joints", "flex.computed", "flex.mask_steps",
    "surround.projections", "surround.rope", "surround.qk_norm", "surround.epilogue",
    "surround.checkpoint", "compile.dynamic", "compile.mode", "compile.options", "compile.breaks",
    "calls.same", "calls.other", "calls.many", "training", "training.subset",
    "training.grad_layout", "training.double", "transform", "grad_mode", "autocast",
    "dirty_memory", "mesh", "refused", "compile.via", "compile.export", "compile.aoti",
    "compile.marks", "modes.deterministic", "modes.default_dtype", "modes.matmul_precision",
    "modes.compiled_autograd", "shape.nothing", "sdpa.ranks", "sdpa.mask_tensor", "sdpa.bias",
    "dropout", "kernel.nested_sdpa", "kernel.varlen", "graph.detours", "graph.several",
    "graph.projected", "graph.returns", "graph.state", "calls.scale", "calls.number",
    "draws.in_place", "flex.other_extents", "flex.paged", "graph.rotary", "surround.layers",
    "surround.region",
)  # fmt: skip
"""`refused` are programs that torch refuses by design, a percent or so: the refusals are kept an
eye on too."""

FEATURES = (*KERNELS, *MASKS, *SCORES, *OTHERS)


@dataclass(frozen=True, kw_only=True)
class UserFunction:
    """A user's own attention function and what a campaign may ask of it: `target` as in
    `generators.kernels.specs.Function`, whether it is `causal`, which `dtypes` it takes, whether it
    has gradients (`training`), and whether Lq may differ from Lkv (`cross`)."""

    __pydantic_config__ = STRICT
    target: Target
    causal: bool = False
    dtypes: Annotated[tuple[FloatDtype, ...], Field(min_length=1)] = ("float32",)
    training: bool = False
    cross: bool = False


@dataclass(frozen=True)
class Profile:
    """What a shard is about: relative weights of the kernels and of the compile back-ends ("none"
    is eager), each a tuple of pairs. An eager program costs a tenth of a compiled one or less: half
    or more are eager where all can be, and take 5 to 35% of the time. Programs of "ranks" have
    several real ranks wherever they may, those of the others never: they cost as many times as
    much. Those of "traced" are about what dynamo follows: most make their BlockMask in the compiled
    region. Those of "guards" are about what a compiled function has to notice: arguments that
    change, modes, ways to reach it. Those of "integrated" reach their kernel as libraries do,
    through an operator of its own and the like. `ranks`: whether programs have several ranks whose
    DTensors are spread over them, as those of "ranks", or which share one attention by a method, as
    those of "parallel". `about`: features that most of its swarms have. `lite`: for each nine
    programs that Inductor generates code for, those of which it rewrites the graph alone, cheap to
    run, where its attention fusions are wrong if anything is. `family`: the one that all its graphs
    are of."""

    kernels: tuple[tuple[str, int], ...]
    backends: tuple[tuple[str, int], ...]
    ranks: Literal["few", "several", "methods"] = "few"
    about: tuple[str, ...] = ()
    lite: int = 0
    family: str | None = None


MASK_OBJECTS = ("flex.mask_steps", "flex.joints", "flex.block_size", "mask.and", "mask.or")

GUARDED = (
    "calls.scale", "calls.number", "draws.in_place", "compile.via", "compile.export",
    "modes.deterministic", "modes.compiled_autograd", "modes.default_dtype", "training",
)  # fmt: skip


PROFILES: dict[str, Profile] = {
    "mixed": Profile(
        (("sdpa", 4), ("flex", 4), ("handwritten", 3)),
        (("none", 10), ("inductor", 7), ("aot_eager", 2), ("eager", 1)),
        lite=2,
    ),
    "eager": Profile(
        (("sdpa", 7), ("flex", 2), ("handwritten", 1)),
        (("none", 12), ("aot_eager", 5), ("eager", 1)),
    ),
    "inductor-sdpa": Profile((("sdpa", 1),), (("inductor", 1),), lite=4),
    "inductor-handwritten": Profile((("handwritten", 1),), (("inductor", 1),), lite=8),
    "inductor-flex": Profile((("flex", 1),), (("inductor", 1),)),
    "ranks": Profile(
        (("sdpa", 1), ("handwritten", 2)),
        (("none", 2), ("eager", 1), ("aot_eager", 3), ("inductor", 1)),
        "several",
    ),
    "parallel": Profile(
        (("sdpa", 4), ("handwritten", 1), ("flex", 1)),
        (("none", 10), ("eager", 1), ("aot_eager", 2), ("inductor", 1)),
        "methods",
    ),
    "inductor-parallel": Profile(
        (("sdpa", 4), ("handwritten", 1), ("flex", 1)),
        (("none", 1), ("eager", 1), ("aot_eager", 2), ("inductor", 6)),
        "methods",
    ),
    "traced": Profile(
        (("flex", 1),),
        (("eager", 4), ("aot_eager", 3), ("inductor", 1)),
        about=(*MASK_OBJECTS, "flex.inside"),
    ),
    "block_masks": Profile(
        (("flex", 1),),
        (("none", 24), ("eager", 2), ("aot_eager", 4), ("inductor", 1)),
        about=(*MASK_OBJECTS, "flex.adjusted", "flex.paged", "shape.cross"),
    ),
    "guards": Profile(
        (("sdpa", 4), ("handwritten", 3), ("flex", 1)),
        (("none", 3), ("eager", 4), ("aot_eager", 5), ("inductor", 1)),
        about=GUARDED,
    ),
    "integrated": Profile(
        (("sdpa", 3), ("handwritten", 2)),
        (("none", 1), ("eager", 2), ("aot_eager", 4), ("inductor", 2)),
    ),
    "flash_attn": Profile(
        (("flash_attn", 1),), (("none", 4), ("eager", 1), ("aot_eager", 2), ("inductor", 2))
    ),
    "ring_flash_attn": Profile(
        (("ring_flash_attn", 1),), (("none", 8), ("eager", 1), ("aot_eager", 1))
    ),
    "npu_fusion_attention": Profile(
        (("npu_fusion_attention", 1),),
        (("none", 3), ("eager", 1), ("aot_eager", 3), ("inductor", 1)),
    ),
    "npu-parallel": Profile(
        (("npu_fusion_attention", 1),),
        (("none", 3), ("eager", 1), ("aot_eager", 3), ("inductor", 1)),
        "methods",
    ),
    "multihead_attention": Profile(
        (("multihead_attention", 1),),
        (("none", 25), ("eager", 1), ("aot_eager", 2), ("inductor", 2)),
    ),
    "modules": Profile(
        (("multihead_attention", 1), ("transformer_layer", 1)),
        (("none", 25), ("eager", 1), ("aot_eager", 2), ("inductor", 3)),
        lite=9,
    ),
    "graph": Profile(
        (("graph", 1),),
        (("none", 6), ("eager", 1), ("aot_eager", 2), ("inductor", 13)),
        about=("graph.several", "graph.projected"),
        lite=28,
    ),
    "decode": Profile(
        (("graph", 1),),
        (("none", 16), ("eager", 1), ("aot_eager", 4), ("inductor", 3)),
        lite=9,
        family="decode",
    ),
    "fusion": Profile(
        (("graph", 2), ("handwritten", 1)),
        (("none", 1), ("inductor", 9)),
        lite=81,
        family="idiom",
    ),
    "sdpa_forms": Profile(
        (("sdpa", 5), ("nested_sdpa", 4), ("handwritten", 3)),
        (("none", 16), ("eager", 1), ("aot_eager", 3), ("inductor", 3)),
        lite=9,
    ),
    "varlen": Profile(
        (("varlen", 1),), (("none", 1), ("eager", 1), ("aot_eager", 2), ("inductor", 3))
    ),
    "transformers": Profile(
        (("transformers", 1),),
        (("none", 5), ("eager", 1), ("aot_eager", 4), ("inductor", 2)),
    ),
    "torchtitan": Profile(
        (("torchtitan", 1),), (("none", 2), ("eager", 1), ("aot_eager", 4), ("inductor", 3))
    ),
    "yunchang": Profile((("yunchang", 1),), (("none", 4), ("eager", 1), ("aot_eager", 1))),
    "diffusers": Profile(
        (("diffusers", 1),), (("none", 5), ("eager", 1), ("aot_eager", 3), ("inductor", 2))
    ),
    "attention_gym": Profile(
        (("attention_gym", 1),), (("none", 5), ("eager", 1), ("aot_eager", 3), ("inductor", 2))
    ),
    "torchtune": Profile(
        (("torchtune", 1),), (("none", 5), ("eager", 1), ("aot_eager", 3), ("inductor", 2))
    ),
    "function": Profile(
        (("function", 1),), (("none", 2), ("eager", 2), ("aot_eager", 3), ("inductor", 3))
    ),
}


BACKENDS = ("none", "eager", "aot_eager", "inductor")

MAX_COST = 40_000_000
"""Multiply-adds of one attention call, B * Hq * Lq * Lkv * (D + Dv): about a second, all runs
together, on one core."""


@dataclass(frozen=True)
class Place:
    """What programs are drawn for: where tensors lie, as torch names it, how many multiply-adds an
    attention call may cost, and whether it is a GPU, where flex_attention trains, but takes no
    small head dimensions. `backends` are those of torch.compile that it has, "none" for eager.
    `ranks`: those of a program of several, all as processes or "simulated", the latter alone, or
    "one", so that the others cost nothing.
    `as_trained`: mostly of half precision, a tile of tokens or more, and the head dimensions of
    models where it is trained (a forward alone has small ones), in few calls; other programs take a
    GPU's compilers several times as long. `links`: there are libraries of the device that C++ can
    be linked with. `redraws`: numbers are computed, and take no time: a compiled program is given
    several draws of them."""

    device: str = "cpu"
    max_cost: int = MAX_COST
    gpu: bool = False
    backends: tuple[str, ...] = BACKENDS
    ranks: Literal["all", "simulated", "one"] = "all"
    as_trained: bool = False
    links: bool = True
    redraws: bool = True

    @property
    def one_rank(self) -> bool:
        """Whether of any number of ranks it sees one alone."""
        return self.ranks == "one"


CPU = Place()


@dataclass(frozen=True)
class Swarm:
    """The features that may appear, in the order of `FEATURES`, the name of a profile, the user's
    functions, which the profile "function" needs, and the place where the programs are to run."""

    profile: str = "mixed"
    features: tuple[str, ...] = FEATURES
    functions: tuple[UserFunction, ...] = ()
    place: Place = CPU

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ValueError(f"profile: expected one of {', '.join(PROFILES)}, got {self.profile}")
        for name in self.features:
            if name not in FEATURES:
                raise ValueError(f"features: {name} is no feature")
        if self.profile == "function" and not self.functions:
            raise ValueError("functions: expected at least one for the profile function")

    def has(self, name: str) -> bool:
        """Whether the feature `name` may appear."""
        return name in self.features

    def has_kernel(self, name: str) -> bool:
        """Whether programs of a kernel of the profile may appear; one that is no feature may."""
        feature = f"kernel.{name}"
        return feature in self.features or feature not in FEATURES

    def rarity(self, n: int) -> int:
        """How rare a mode or a changing argument is: one in `n` programs, and in the profile
        "guards", which is about them, four times as many."""
        return n // 4 if self.profile == "guards" else n


EVERYTHING = Swarm()


def swarm_for(
    seed: int,
    index: int,
    profile: str = "mixed",
    functions: tuple[UserFunction, ...] = (),
    place: Place = CPU,
) -> Swarm:
    """The swarm of shard `index`, a pure function of its arguments: everything for one shard in
    eight, otherwise each feature with probability 1/2 (of the kernels, at least one that the
    profile has; what the profile is about, with 7/8)."""
    random = Random(derive(seed, "swarm", index))
    if random.random() < 1 / 8:
        return Swarm(profile, functions=functions, place=place)
    chosen = [name for name in FEATURES if random.random() < 1 / 2]
    wanted = [f"kernel.{kernel}" for kernel, _ in PROFILES[profile].kernels]
    if not any(name in chosen or name not in FEATURES for name in wanted):
        chosen += wanted
    chosen += [name for name in PROFILES[profile].about if random.random() < 3 / 4]
    features = tuple(name for name in FEATURES if name in chosen)
    return Swarm(profile, features, functions, place)


def profile_for(seed: int, index: int, profiles: Mapping[str, float]) -> str:
    """The profile of shard `index`, with the given relative weights. Raises ValueError for a
    profile that is not in `PROFILES` or weights that add to 0."""
    for name, weight in profiles.items():
        if name not in PROFILES:
            raise ValueError(f"profiles: expected some of {', '.join(PROFILES)}, got {name}")
        if not 0 <= weight < float("inf"):
            raise ValueError(f"profiles.{name}: expected a weight of at least 0, got {weight}")
    return by_weight(seed, "profile", index, profiles)


STEPS = {"profile": (5**0.5 - 1) / 2, "target": 2**0.5 - 1}
"""Irrational, and no simple ratio between them: each profile meets each target."""


def by_weight(seed: int, what: str, index: int, weights: Mapping[str, float]) -> str:
    """One of `weights`, which may be in any order, for shard `index`. Any stretch of shards has
    each about as often as its weight says: the points they are told by are equal steps around a
    circle, from a random start (an additive recurrence). `what` is a name in `STEPS`. Raises
    ValueError where no weight is above 0."""
    named = sorted((name, weight) for name, weight in weights.items() if weight > 0)
    if not named:
        raise ValueError(f"{what}s: expected at least one weight above 0")
    turn = Random(derive(seed, what)).random() + index * STEPS[what]
    point = turn % 1 * sum(weight for _, weight in named)
    for name, weight in named:
        point -= weight
        if point < 0:
            return name
    return named[-1][0]

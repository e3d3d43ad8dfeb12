"""The program: one attention computation and how it is run, as plain data.

A `Program` is a tree of frozen dataclasses. Shapes are `[B, Hq, Lq, D]` for q, `[B, Hkv, Lkv, D]`
for k and `[B, Hkv, Lkv, Dv]` for v. Its meaning never depends on anything outside it: `seed` fixes
every value. `model.codec` takes it to YAML and back; `model.validity` says which
combinations are programs at all; `generators.render` writes its source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from attnfuzz.generators.kernels.specs import Handwritten, Kernel, Sdpa
from attnfuzz.generators.methods.specs import Method
from attnfuzz.generators.model.indices import STRICT
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.model.options import InductorOptions
from attnfuzz.generators.model.scores import ScoreMod

Extent = Annotated[int, Field(ge=0, le=256)]
Length = Annotated[int, Field(ge=0, le=4096)]
HeadDim = Annotated[int, Field(ge=1, le=1024)]
FloatDtype = Literal["float32", "bfloat16", "float16", "float64"]
TensorName = Literal["q", "k", "v"]
Placement = Literal["replicate", "batch", "heads", "length", "head_dim"]
Mark = Literal["auto", "dynamic", "unbacked", "static"]
Small = Annotated[int, Field(ge=0, le=64)]
Value = Annotated[float, Field(allow_inf_nan=False, ge=0, le=4096)]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Extents: `batch` B, `q_heads` Hq (a multiple of `kv_heads` Hkv, or both 0), `q_len` Lq,
    `kv_len` Lkv, `head_dim` D, `v_head_dim` Dv (None: D)."""

    __pydantic_config__ = STRICT
    batch: Extent = 1
    q_heads: Extent = 1
    kv_heads: Extent = 1
    q_len: Length = 16
    kv_len: Length = 16
    head_dim: HeadDim = 16
    v_head_dim: HeadDim | None = None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a `[B, H, L, D]` tensor lies in memory.

    `order` is the order of dimensions in the storage, outermost first: (0, 2, 1, 3) is BSHD storage
    seen as BHSD. `pad` elements are left over at the end of each dimension, `start` at its
    beginning (a slice of a larger buffer, a non-zero storage offset), `step` takes every n-th.
    Dimensions in `expand` are stored once and expanded (stride 0). `unread` is what lies in the
    storage where the tensor is not: more of its values, or NaN, which nothing may read.
    """

    __pydantic_config__ = STRICT
    order: tuple[int, int, int, int] = (0, 1, 2, 3)
    pad: tuple[Small, Small, Small, Small] = (0, 0, 0, 0)
    start: tuple[Small, Small, Small, Small] = (0, 0, 0, 0)
    step: tuple[
        Annotated[int, Field(ge=1, le=4)], Annotated[int, Field(ge=1, le=4)],
        Annotated[int, Field(ge=1, le=4)], Annotated[int, Field(ge=1, le=4)],
    ] = (1, 1, 1, 1)  # fmt: skip
    expand: tuple[Annotated[int, Field(ge=0, le=3)], ...] = ()
    unread: Literal["values", "nan"] = "values"


BSHD = Layout(order=(0, 2, 1, 3))
"""As models store what comes of a projection."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """One of q, k, v. `values`: standard normal; `tiny` normal * 1e-4; `large` normal * 8; `huge`
    normal * 100; `zeros`; `ones`; `one_hot` (a few entries 8, others 0); `nan_at_masked`: NaN at
    key positions that no query may see (k only, for kernels that select rather than add);
    `negative` uniform in (-8, 0]; `denormal`: below the dtype's smallest normal number; `nan` and
    `inf`: normal, but for one entry in 200 that is NaN or infinite, of either sign."""

    __pydantic_config__ = STRICT
    dtype: FloatDtype = "float32"
    layout: Layout = field(default_factory=Layout)
    values: Literal[
        "normal", "tiny", "large", "huge", "zeros", "ones", "one_hot", "nan_at_masked",
        "negative", "denormal", "nan", "inf",
    ] = "normal"  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Surround:
    """The attention module around the kernel: with `projections`, x `[B, Lq, Hq * D]` (and context
    `[B, Lkv, Hq * D]` when Lq != Lkv) are projected to q, k, v, and the result is projected back.
    `rope` rotates q and k (D even, float32 tables): pairs are i and i + D / 2, or 2 i and 2 i + 1
    (`rope_interleaved`). `qk_norm` is an RMS norm over D of both.
    `epilogue` is what becomes of the result `[B, Hq, Lq, Dv]` first: halved (`scaled`), q added
    (`residual`), or multiplied by the sigmoid of q (`gated`); the last two need Dv = D.
    `checkpoint`: activation checkpointing around all of it (non-reentrant `full`, `selective`
    saving matmuls and attention, or `reentrant`), which models keep on when they do not train.
    `integration`: how the kernel is reached. As it is (`direct`); as a `torch.library.custom_op`
    whose result is contiguous, or contiguous as `[B, L, H, D]` (`custom_op_bshd`), with a fake
    kernel that says so; through a `torch.autograd.Function`; or as a function that is allowed in
    the graph, or on which `torch.compiler.disable` is put.
    `layers`: all of this is applied so many times, and what all but the last give is added to q (or
    x), as in a residual stream. `region`: it is a `torch.compiler.nested_compile_region`, which is
    compiled once for all layers."""

    __pydantic_config__ = STRICT
    projections: bool = False
    rope: bool = False
    rope_interleaved: bool = False
    qk_norm: bool = False
    epilogue: Literal["none", "scaled", "residual", "gated"] = "none"
    checkpoint: Literal["none", "full", "selective", "reentrant"] = "none"
    integration: Literal[
        "direct", "custom_op", "custom_op_bshd", "autograd_function", "allow_in_graph", "disable"
    ] = "direct"
    layers: Literal[1, 2, 3] = 1
    region: bool = False


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What dynamo is told of the sizes of q, k and v (or x and the context) before each call:
    `torch._dynamo.mark_dynamic`, `mark_unbacked` or `mark_static`; nothing where it is `auto`."""

    __pydantic_config__ = STRICT
    batch: Mark = "auto"
    q_len: Mark = "auto"
    kv_len: Mark = "auto"


@dataclass(frozen=True, kw_only=True)
class Compile:
    """`torch.compile(attention, …)`. `mode` and `options` are exclusive (torch's rule); `options`
    are Inductor's. What is inside the region is everything in the attention function: see
    `BlockMaskSpec.made` and `Surround`.

    `via` is how the function is compiled and reached. As it is (`compile`); called on views that an
    eager function makes (`in_eager`); called by a function that is compiled itself (`in_compiled`);
    as the forward of a `module`; as three modules, `layers` that an eager loop goes through, the
    last of which counts. `export`: `torch.export.export` of a module, run by its `.module()`, which
    no back-end compiles. `aoti`: what was exported, compiled ahead of time by AOTInductor."""

    __pydantic_config__ = STRICT
    backend: Literal["eager", "aot_eager", "inductor"] = "inductor"
    mode: (
        Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite"]
        | None
    ) = None
    dynamic: bool | None = None
    fullgraph: bool = True
    options: InductorOptions = field(default_factory=dict)
    via: Literal[
        "compile", "in_eager", "in_compiled", "module", "layers", "export", "aoti", "local"
    ] = "compile"
    marks: Marks = field(default_factory=Marks)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A further call through the same (compiled) function, with its own extents. `fresh_mods`:
    mask_mod, score_mod and BlockMask are made anew; otherwise the first call's are reused where
    the shape is the same (a cached mask)."""

    __pydantic_config__ = STRICT
    batch: Extent
    q_len: Length
    kv_len: Length
    fresh_mods: bool = True


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A number that is another in each call: the last call is done again with each of `values` but
    the first, which all calls before have. `what`: the kernel's `scale`, an argument of the
    attention function; or a `number`, an integer that the mask or the score modification captures
    (`IntArgument`, once in all). `given`: as a Python number, or as a tensor without dimensions."""

    __pydantic_config__ = STRICT
    what: Literal["scale", "number"] = "scale"
    values: Annotated[tuple[Value, ...], Field(min_length=2, max_length=5)]
    given: Literal["float", "int", "tensor"] = "float"

    def number(self, value: float) -> float | int:
        """The value as it is given: an integer, where integers are."""
        return int(value) if self.what == "number" or self.given == "int" else value


@dataclass(frozen=True, kw_only=True)
class Training:
    """`wrt`: which of q, k, v get gradients (learnable tables always do when Training is set).
    `grad_layout`: layout of the output gradient. `double`: gradients of the gradients' sum of
    squares too."""

    __pydantic_config__ = STRICT
    wrt: tuple[TensorName, ...] = ("q", "k", "v")
    grad_layout: Literal["contiguous", "transposed", "expanded"] = "contiguous"
    double: bool = False


@dataclass(frozen=True, kw_only=True)
class Modes:
    """The state of torch that the program is run in. `deterministic`:
    `torch.use_deterministic_algorithms`. `default_dtype`: `torch.set_default_dtype` around the
    attention function; inputs and the reference keep the dtypes that they are written with.
    `matmul_precision`: `torch.set_float32_matmul_precision`. `compiled_autograd`: the backward pass
    of the compiled function is traced and compiled while it runs, with the same back-end.
    `warn_for_unfused_kernels`: `torch.nn.attention.WARN_FOR_UNFUSED_KERNELS`, which the biases of
    `torch.nn.attention.bias` look at, in eager alone: dynamo does not trace why a kernel is not
    fused."""

    __pydantic_config__ = STRICT
    deterministic: bool = False
    default_dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    compiled_autograd: bool = False
    warn_for_unfused_kernels: bool = False


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """`world_size` ranks that run the program together.

    Without a `method` q, k and v are DTensors over a mesh of one dimension: replicated, or sharded
    by batch, heads, length (Lq or Lkv) or head_dim. One rank is a real process of gloo. More are
    `simulated` in this process by torch's LocalTensorMode, with real numbers, eager and forward
    only; or they are `processes`, which gloo connects. `plain_mask`: the program leaves its mask a
    plain tensor, which torch refuses.

    With a `method` the attention function takes and gives whole tensors, and the ranks share what
    is between: `data` of them the batch, `tensor` of them the heads, and the others, `degree`, what
    the method says. Its script is one for `torchrun`: `simulated` ranks are threads of one process
    that run it in turn (see `actors.child.simulation`), `processes` are connected by gloo.
    `lengths`: how many positions each rank of the method has, 0 for none; where there are no
    lengths, these are parts as `torch.chunk` cuts them. `module`: what the method does is in a
    module with projections (`Surround.projections`), which FSDP2's `fully_shard` or DDP wraps over
    all ranks; each of them has a part of the batch and of the length of x.
    """

    __pydantic_config__ = STRICT
    world_size: Annotated[int, Field(ge=1, le=64)] = 1
    ranks: Literal["simulated", "processes"] = "simulated"
    q: Placement = "replicate"
    k: Placement = "replicate"
    v: Placement = "replicate"
    plain_mask: bool = False
    method: Method | None = None
    data: Annotated[int, Field(ge=1, le=64)] = 1
    tensor: Annotated[int, Field(ge=1, le=64)] = 1
    lengths: Annotated[tuple[Length, ...], Field(max_length=64)] = ()
    module: Literal["none", "fsdp", "ddp"] = "none"

    @property
    def launched(self) -> bool:
        """Whether `torchrun` starts the script, a process for each rank."""
        return self.ranks == "processes" or (self.method is not None and self.world_size > 1)

    @property
    def degree(self) -> int:
        """How many ranks the method spreads one batch's and head's attention over; 1 where there
        are too few, which is no program."""
        return max(1, self.world_size // (self.data * self.tensor))


@dataclass(frozen=True, kw_only=True)
class Program:
    """One attention program; see the module's docstring.

    `packed`: q, k, v are views of one buffer along the head dimension of the storage (`qkv`), or k
    and v are (`kv`); the buffer has the layout of q, or that of k in the `order` of q, and the
    layouts of the others are ignored. `draws`: how often the last call is done again with other
    numbers, those of the seeds `seed + 1`, `seed + 2` and so on; `in_place`: written into the
    tensors of the first call, as an optimizer writes parameters. `argument`: a number that is
    another in each call. `transform`: a functorch transform around the call.
    `grad_mode`: the mode a forward-only program runs in. `autocast`: a CPU autocast region inside
    the attention function. `dirty_memory`: glibc fills fresh memory with 0xFE bytes, so that
    uninitialised reads show.
    """

    __pydantic_config__ = STRICT
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    kernel: Kernel = field(default_factory=Sdpa)
    shape: Shape = field(default_factory=Shape)
    q: Input = field(default_factory=Input)
    k: Input = field(default_factory=Input)
    v: Input = field(default_factory=Input)
    packed: Literal["none", "kv", "qkv"] = "none"
    mask: Mask | None = None
    score_mod: ScoreMod | None = None
    surround: Surround = field(default_factory=Surround)
    mesh: Mesh | None = None
    compile: Compile | None = None
    calls: Annotated[tuple[Call, ...], Field(max_length=12)] = ()
    training: Training | None = None
    transform: Literal["none", "vmap", "grad", "jvp"] = "none"
    grad_mode: Literal["default", "no_grad", "inference_mode"] = "default"
    autocast: Literal["bfloat16", "float16"] | None = None
    dirty_memory: bool = False
    draws: Annotated[int, Field(ge=0, le=4)] = 0
    in_place: bool = False
    argument: Argument | None = None
    modes: Modes = field(default_factory=Modes)


__all__ = [
    "Argument", "Call", "Compile", "Handwritten", "Input", "Kernel", "Layout", "Marks", "Mesh",
    "Modes", "Program", "Sdpa", "Shape", "Surround", "Training",
]  # fmt: skip

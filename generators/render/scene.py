"""What every part of a rendering shares: the program, its extents as text, its names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from attnfuzz.generators.model.program import Program
from attnfuzz.generators.render.captures import Captures, Extents
from attnfuzz.generators.render.devices import beside
from attnfuzz.generators.render.quoting import Quoting
from attnfuzz.generators.render.sizes import Size, inverse_root, query_size

RESERVED = (
    "q", "k", "v", "x", "context", "wq", "wk", "wv", "wo", "cos", "sin", "mask", "attn_mask",
    "block_mask", "mask_mod", "score_mod", "score", "b", "h", "q_idx", "kv_idx", "B", "Lq", "Lkv",
    "scores", "probs", "out", "lse", "t", "gate", "residual", "key", "times", "seconds", "began",
    "sliced", "batches", "heads", "rows", "block", "blocks", "lengths", "parts", "block_size",
    "mod", "number", "scale", "paged", "kv_len", "k_cache", "v_cache", "entries", "positions",
    "entry", "part", "leaves", "structure", "alike",
)  # fmt: skip
NAMES = {"B": "q.shape[0]", "Lq": "q.shape[2]", "Lkv": "k.shape[2]"}
PROJECTED_NAMES = {"B": "x.shape[0]", "Lq": "x.shape[1]", "Lkv": "context.shape[1]"}


@dataclass(frozen=True)
class Scene:
    """A program being rendered, for a `device` of torch's; what it is given is made on
    `inputs_device`. Extents are integers, or the names B, Lq and Lkv where the program makes
    several calls; `times` is a name for how often repeated steps are done. `all_ranks`: those of a
    program of several are all there, as they always are on a CPU; without it this process is one of
    them, of a group whose others are not there.
    Text from outside is written as names of `quoting`."""

    program: Program
    device: str = "cpu"
    inputs_device: str = "cpu"
    times: str = ""
    all_ranks: bool = False
    quoting: Quoting = field(default_factory=Quoting, compare=False, repr=False)

    @property
    def several(self) -> bool:
        """Whether the program makes more than one call."""
        return bool(self.program.calls)

    @property
    def batch(self) -> Size:
        """B as a number, or its name where there are several calls."""
        return "B" if self.several else self.program.shape.batch

    @property
    def q_len(self) -> Size:
        """Lq as a number, or its name where there are several calls."""
        return "Lq" if self.several else self.program.shape.q_len

    @property
    def kv_len(self) -> Size:
        """Lkv as a number, or its name where there are several calls."""
        return "Lkv" if self.several else self.program.shape.kv_len

    @property
    def q_heads(self) -> int:
        """Hq, the number of query heads."""
        return self.program.shape.q_heads

    @property
    def kv_heads(self) -> int:
        """Hkv, the number of key and value heads."""
        return self.program.shape.kv_heads

    @property
    def group(self) -> int:
        """Query heads to each key head."""
        return self.q_heads // self.kv_heads if self.kv_heads else 1

    @property
    def head_dim(self) -> int:
        """D, the head dimension of q and k."""
        return self.program.shape.head_dim

    @property
    def v_head_dim(self) -> int:
        """The head dimension of v, D unless it has its own."""
        return self.program.shape.v_head_dim or self.head_dim

    @property
    def extents(self) -> Extents:
        """How long the axes b, h, q_idx and kv_idx are."""
        return Extents(self.batch, self.q_heads, self.q_len, self.kv_len)

    @property
    def dtype(self) -> str:
        """The dtype that the result has: autocast's, else q's."""
        return self.program.autocast or self.program.q.dtype

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """Lq and Lkv of every call."""
        shape = self.program.shape
        return [(shape.q_len, shape.kv_len), *((c.q_len, c.kv_len) for c in self.program.calls)]

    @property
    def self_attention(self) -> bool:
        """Whether every call has Lq == Lkv, so that one x gives q, k and v."""
        return all(q_len == kv_len for q_len, kv_len in self.lengths)

    @cached_property
    def taken(self) -> set[str]:
        """Names that no captured table may have; grows as tables are named."""
        return set(RESERVED)

    def captures(self, extents: Extents | None = None, dense: bool = False) -> Captures:
        """A fresh collector; see `Captures`. There are no 0-d indices into nothing."""
        chains = not dense and all(q_len and kv_len for q_len, kv_len in self.lengths)
        argument = self.program.argument
        return Captures(
            extents=extents or self.extents,
            kv_len=self.kv_len,
            chains=chains,
            times=self.times,
            argument_is_tensor=argument is not None and argument.given == "tensor",
            taken=self.taken,
        )

    @property
    def scale_varies(self) -> bool:
        """Whether the scale is an argument of the attention function, by that name."""
        argument = self.program.argument
        return argument is not None and argument.what == "scale"

    def scale_text(self, scale: float | None, source: str = "constant") -> str:
        """The scale as a constant, 1/sqrt(D) where it is None; its name where it is an argument;
        what computes it where `source` is a size of q."""
        if self.scale_varies:
            return "scale"
        if source != "constant":
            return query_size(source, -0.5)
        return repr(float(scale)) if scale is not None else inverse_root(self.head_dim)

    def like_q(self) -> str:
        """`, dtype=…, device=…` of what is made in the attention function to go with q."""
        return ", dtype=q.dtype" + beside(self.device, "q")

    def with_extents(self, lines: list[str]) -> list[str]:
        """`lines` of a function of q, k, v (or x), after statements for the extents they name."""
        names = dict(PROJECTED_NAMES if self.program.surround.projections else NAMES)
        if self.program.surround.projections and self.self_attention:
            names["Lkv"] = "x.shape[1]"
        return naming_extents(lines, names)


def naming_extents(lines: list[str], names: Mapping[str, str] = NAMES) -> list[str]:
    """`lines` after a statement for each extent that they name."""
    text = "\n".join(lines)
    used = [name for name in names if re.search(rf"\b{name}\b", text)]
    return [f"{name} = {names[name]}" for name in used] + lines


def dtype_argument(dtype: str) -> str:
    """`, dtype=…`, nothing for torch's default."""
    return "" if dtype == "float32" else f", dtype=torch.{dtype}"


def indented(lines: list[str], levels: int = 1) -> list[str]:
    """`lines` indented by four spaces a level; empty lines stay empty."""
    return ["    " * levels + line if line else line for line in lines]

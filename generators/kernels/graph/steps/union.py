"""Every step there is: the union `Step` is where one is registered."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from attnfuzz.generators.kernels.graph.steps.arithmetic import (
    Binary,
    Cast,
    IsZero,
    Linear,
    Norm,
    Pointwise,
    Scale,
)
from attnfuzz.generators.kernels.graph.steps.attention import (
    Attend,
    Einsum,
    LogSumExp,
    MaskScores,
    Merge,
    Product,
    Softmax,
    ZeroEmptyRows,
)
from attnfuzz.generators.kernels.graph.steps.joins import Cat, Split, Stack
from attnfuzz.generators.kernels.graph.steps.rotary import Rotary
from attnfuzz.generators.kernels.graph.steps.state import (
    Append,
    AppendToList,
    AttendWritten,
    PositionMask,
    Store,
    StoreInPages,
)
from attnfuzz.generators.kernels.graph.steps.views import (
    Contiguous,
    Expand,
    ExpandAs,
    Flatten,
    Flip,
    Permute,
    Slice,
    Squeeze,
    Unflatten,
    Unsqueeze,
)

AnyStep = Annotated[
    Permute | Flatten | Unflatten | Unsqueeze | Squeeze | Expand | Slice | Contiguous | Flip
    | Cat | Stack | Split | Cast | Binary | Scale | Pointwise | Linear | Norm
    | Product | Einsum | MaskScores | Softmax | LogSumExp | Merge | Attend | IsZero | ExpandAs
    | Store | StoreInPages | Append | PositionMask | AttendWritten | Rotary | AppendToList
    | ZeroEmptyRows,
    Field(discriminator="kind"),
]  # fmt: skip
"""A step, told by its `kind`. A new one is appended."""

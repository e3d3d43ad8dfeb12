"""Types that fields of several kernels have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

Scale = Annotated[float, Field(allow_inf_nan=False, ge=-1e4, le=1e4)]
"""What scores are multiplied by."""

ScaleFrom = Literal["constant", "head_dim", "q_len"]
"""Where a scale comes from: it is a number, or the attention function computes it as one over the
root of what `q.size` says, which dynamic sizes make a symbol while it is compiled."""

Probability = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1)]
"""How likely a weight is dropped."""

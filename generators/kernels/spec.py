"""Types that fields of several kernels have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Scale = Annotated[float, Field(allow_inf_nan=False, ge=-1e4, le=1e4)]
"""What scores are multiplied by."""

Probability = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1)]
"""How likely a weight is dropped."""

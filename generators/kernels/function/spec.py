"""A user's own attention function, as data."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from attnfuzz.generators.model.indices import STRICT


def _importable(target: str) -> str:
    module, colon, name = target.partition(":")
    names = [*module.split("."), name]
    if (
        not colon
        or module == "__future__"
        or any(not _NAME.fullmatch(one) or keyword.iskeyword(one) for one in names)
    ):
        raise PydanticCustomError("target", "expected module:function, as Python names them")
    return target


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Target = Annotated[str, Field(max_length=200), AfterValidator(_importable)]


@dataclass(frozen=True, kw_only=True)
class Function:
    """A user's own attention function `target` = `module:name`, importable where the program
    runs (a `preload` file may define the module), called as `f(q, k, v)` with q, k, v
    `[B, H, L, D]`; it must mean softmax(scale q k^T [+ causal mask]) v, scale 1/sqrt(D)."""

    __pydantic_config__ = STRICT
    kind: Literal["function"] = "function"
    target: Target

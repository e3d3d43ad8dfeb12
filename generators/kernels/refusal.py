"""What a refusal by design is, and the kernels that one may belong to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attnfuzz.generators.model.program import Program

Needs = Callable[[Program], bool]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One refusal. `pattern` is a regular expression searched in "Type: message" of the innermost
    exception; `why` is one line for a person; `kernels` are the kinds of kernel it belongs to, or
    `compile` for torch.compile's own; `needs` says whether a program asks for what is declined;
    `thread` is a public discussion. For kernel `function` nothing is known of what the user's
    function asks for, so `needs` is not consulted there.
    """

    pattern: str
    why: str
    kernels: tuple[str, ...]
    needs: Needs = lambda program: True
    thread: str = ""


SDPA = ("sdpa", "function")
FLEX = ("flex", "function")
HAND = ("handwritten", "function")
ANY = ("sdpa", "flex", "handwritten", "function")
MESHED = (*ANY, "npu_fusion_attention")
OWN = ("function",)
COMPILE = ("compile",)

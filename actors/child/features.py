"""What the compiler did, as short strings: for novelty, and for telling causes apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from attnfuzz.actors.child.compiler_log import CompilerLog

_CALLED = re.compile(r"\b(extern_kernels\.\w+|torch\.ops\.\w+\.\w+(?:\.\w+)?)\(")
_KERNEL = re.compile(r"^(cpp_[A-Za-z_]+?)(?:_\d+)* = async_compile", re.MULTILINE)
_COUNTED = ("fuse_attention", "pattern_matcher_count", "cpp_templated_kernel_counter",
            "cpp_micro_gemm", "cpp_epilogue_fusion_counter")  # fmt: skip
LONGEST = 100


class GeneratedCode:
    """The Python wrappers, C++ inside, that Inductor wrote."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Has Inductor hand over each output while inside."""
        from torch._inductor.graph import GraphLowering

        before = GraphLowering.save_output_code
        GraphLowering.save_output_code = staticmethod(self.texts.append)
        try:
            yield
        finally:
            GraphLowering.save_output_code = before

    def text(self) -> str:
        """All the wrappers collected so far, with a blank line between them."""
        return "\n\n".join(self.texts)


def of_compiler(log: CompilerLog, code: GeneratedCode) -> list[str]:
    """Sorted features of all that was compiled since dynamo's counters were cleared."""
    found: set[str] = set()
    counters = torch._dynamo.utils.counters
    found.update(f"graph_break:{_short(reason)}" for reason in counters["graph_break"])
    found.update(f"inductor.{name}" for name in counters["inductor"] if name.startswith(_COUNTED))
    found.update(f"recompile:{_short(_without_numbers(r))}" for r in log.recompiles())
    found.add(f"frames.{min(len(log.counted()), 8)}")
    if log.unfused:
        found.add("flex.unfused")
    for text in code.texts:
        found.update(f"calls:{name}" for name in _CALLED.findall(text))
        found.update(f"kernel:{_short(name)}" for name in _KERNEL.findall(text))
    return sorted(found)


def _short(text: str) -> str:
    return " ".join(text.split())[:LONGEST]


def _without_numbers(reason: str) -> str:
    return re.sub(r"\d+", "N", reason.partition(": ")[2] or reason)

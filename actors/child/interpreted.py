"""A program's way through the child of an interpreted target: what Inductor generates for a card
is run on the CPU, and its numbers are judged.

The reference and eager attention are the CPU's own, of the program's source for the CPU. The
compiled program is given fake tensors of the card with the same numbers behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from actors.virtual import interpret, shadows

from . import metadata
from .execute import Execution
from .features import GeneratedCode
from .hygiene import CompilerLog
from .outcomes import Data, Rejected
from .program_module import Outputs, ProgramModule
from .to_device import ToCard

PLAIN = "plain_program"
KINDS = {"tem": "template", "poi": "pointwise", "red": "reduction", "per": "persistent reduction"}
"""Inductor's kinds of kernel, by what their names contain."""


class InterpretedExecution(Execution):
    """One program whose generated kernels are interpreted."""

    def _build(self) -> None:
        super()._build()
        path = Path("plain.py")
        path.write_text(self.settings["plain"])
        with self._exceptions("build", None):
            self._plain = ProgramModule(path, name=PLAIN)
        self._for_card = self.program

    def _eager(self) -> None:
        with self._on_cpu():
            super()._eager()

    def _compiled(self) -> None:
        interpret.KERNELS.clear()
        super()._compiled()
        if not interpret.KERNELS:
            raise Rejected("interpreted: Inductor generated no kernel for the card")

    @contextmanager
    def _features(self, log: CompilerLog, code: GeneratedCode) -> Iterator[None]:
        with super()._features(log, code):
            yield
        kinds = {kind for kind in KINDS if any(f"_{kind}_" in name for name in interpret.KERNELS)}
        self.features = [*self.features, *(f"interpreted.{KINDS[kind]}" for kind in sorted(kinds))]

    def _rerun(self, backend: str) -> Data | None:
        """Only what Inductor generates is for the card."""
        if backend == "inductor":
            return super()._rerun(backend)
        with self._on_cpu():
            return super()._rerun(backend)

    @contextmanager
    def _on_cpu(self) -> Iterator[None]:
        self.program = self._plain
        try:
            yield
        finally:
            self.program = self._for_card

    def _run(
        self, function: Callable[..., Any], call: int, layer: str
    ) -> tuple[Outputs, dict[str, Data]]:
        if self.program is self._plain:
            return super()._run(function, call, layer)
        args = self.program.inputs(call)
        names = self.program.argument_names(len(args))
        outputs = self._outputs(function, args, layer)
        return outputs, metadata.describe(outputs, args, names)

    def _outputs(self, function: Callable[..., Any], args: tuple[Any, ...], layer: str) -> Outputs:
        if self.program is self._plain:
            return super()._outputs(function, args, layer)
        mode = shadows.ShadowMode(allow_non_fake_inputs=True)
        given = tuple(map(ToCard(mode), args))
        with mode:
            outputs = super()._outputs(function, given, layer)
        try:
            return {name: _numbers(value) for name, value in outputs.items()}
        except shadows.NoShadow:
            raise Rejected("interpreted: what was not compiled decides the numbers") from None


def _numbers(output: Any) -> Any:
    """What is behind an output, as the program's caller sees it."""
    real = shadows.shadow(output)
    if isinstance(output, torch.Tensor) and output.requires_grad:
        return real.detach().requires_grad_()
    return real

"""A program's way through the child of an interpreted target: what Inductor generates for a card
is run on the CPU, and its numbers are judged.

The reference and eager attention are the CPU's own, of the program's source for the CPU. The
compiled program is given fake tensors of the card with the same numbers behind them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)

from attnfuzz.actors.child import exceptions
from attnfuzz.actors.child.compiler_log import CompilerLog
from attnfuzz.actors.child.execute import Execution
from attnfuzz.actors.child.features import GeneratedCode
from attnfuzz.actors.child.outcomes import Data, Rejected
from attnfuzz.actors.child.phases import Phases
from attnfuzz.actors.child.program_module import MODULE, Outputs, ProgramModule
from attnfuzz.actors.child.to_device import ToCard
from attnfuzz.actors.oracles import metadata
from attnfuzz.actors.targets.interpreted_card import interpret, shadows
from attnfuzz.actors.targets.virtual_card.execution import LIFTED

PLAIN = "plain_program"
OF_CARD = ("dtype", "stride")
"""What may differ where eager attention runs on a card: autocast has other lists of operators."""
FAKE_ONLY = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    shadows.NoShadow,
)
"""Raised by fake tensors, and by no card."""
KINDS = {"tem": "template", "poi": "pointwise", "red": "reduction", "per": "persistent reduction"}
"""Inductor's kinds of kernel, by what their names contain."""


class ToShadowedCard(ToCard):
    """Copies values to fake tensors of a card that have the same numbers behind them."""

    def _follow(self, memory: torch.Tensor, storage: torch.UntypedStorage) -> None:
        with unset_fake_temporarily():
            real = torch.empty(0, dtype=memory.dtype)
            real.set_(storage, 0, (memory.numel(),))
        shadows.attach(memory, real)


class InterpretedExecution(Execution):
    """One program whose generated kernels are interpreted."""

    def __init__(self, settings: Data, phases: Phases) -> None:
        super().__init__(settings | {"refusals": [*settings.get("refusals", ()), LIFTED]}, phases)

    def _build(self) -> None:
        super()._build()
        path = Path("plain.py")
        path.write_text(self.settings["plain"])
        with self._exceptions("build", None):
            self._plain = ProgramModule(path, name=PLAIN)
            # What runs to tell shapes keeps what it makes, a BlockMask say: not for the other runs.
            module = sys.modules[MODULE]
            self._rehearsal = ProgramModule(self.source)
            sys.modules[MODULE] = module
        self._for_card = self.program
        self._mode = shadows.ShadowMode(allow_non_fake_inputs=True)

    def _eager(self) -> None:
        with self._on_cpu():
            super()._eager()
        for run in self.eager:
            on_card = self._on_card(run.call)
            for name in run.described.keys() & on_card.keys():
                found = on_card[name]
                run.described[name] |= {what: found[what] for what in OF_CARD if what in found}

    def _on_card(self, call: int) -> dict[str, Data]:
        """What eager attention gives on the card, which fake tensors tell but for the numbers;
        nothing where those decide."""
        mode, program = FakeTensorMode(allow_non_fake_inputs=True), self._rehearsal
        args = tuple(map(ToCard(mode), program.inputs(call)))
        with self._exceptions("eager", "eager"):
            try:
                with mode:
                    outputs = program.run(program.attention, args)
            except Exception as error:
                if any(isinstance(link, FAKE_ONLY) for link in exceptions.links(error)):
                    return {}
                raise
        return metadata.describe(outputs, args, program.argument_names(len(args)))

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

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], layer: str) -> Outputs:
        """The arguments stay on the CPU: their memory is that behind the fake tensors."""
        if self.program is self._plain:
            return super()._called(function, args, layer)
        given = tuple(map(ToShadowedCard(self._mode), args))
        with self._mode:
            outputs = super()._called(function, given, layer)
        with self._exceptions("forward", layer):
            return {name: _numbers(value) for name, value in outputs.items()}

    def _judge_exception(self, error: BaseException, phase: str, layer: str | None) -> NoReturn:
        if any(isinstance(link, shadows.NoShadow) for link in exceptions.links(error)):
            raise Rejected("interpreted: what was not compiled decides the numbers") from None
        super()._judge_exception(error, phase, layer)


def _numbers(output: Any) -> Any:
    """What is behind an output, as the program's caller sees it."""
    real = shadows.shadow(output)
    if isinstance(output, torch.Tensor) and output.requires_grad:
        return real.detach().requires_grad_()
    return real

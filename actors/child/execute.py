"""A program's way through the child: build, reference, eager, compiled, blame."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch
import torch.distributed as dist

from attnfuzz.actors.child import ahead, exceptions, failure_kinds, features, layers, setup
from attnfuzz.actors.child.compiler_log import CompilerLog
from attnfuzz.actors.child.outcomes import Data, Failed, Rejected, failure
from attnfuzz.actors.child.phases import Phases
from attnfuzz.actors.child.program_module import Outputs, ProgramModule
from attnfuzz.actors.child.refused_choices import RefusedChoices
from attnfuzz.actors.oracles import metadata, numbers
from attnfuzz.actors.oracles.expectation import Expectation
from attnfuzz.actors.oracles.hygiene import calls_of, limit_is_the_programs
from attnfuzz.actors.oracles.oracle import Oracle, Run
from attnfuzz.actors.oracles.registry import ORACLES

EXCERPT = 12_000
BACKWARD = "backward"
BLOCK_MASKS = "torch/nn/attention/flex_attention.py"


class Execution:
    """One program. `settings` is the job; see docs/ARCHITECTURE.md and `actors.sandbox.job.Job`.
    `oracles` are those that judge it here."""

    oracles: ClassVar[Sequence[type[Oracle]]] = ORACLES

    def __init__(self, settings: Data, phases: Phases) -> None:
        self.settings, self.phases = settings, phases
        self.source = Path(settings["source"])
        self.compile: Data | None = settings.get("compile")
        self.skipped: dict[str, str] = {}
        self.features: list[str] = []
        self.digests: list[tuple[str, int, str, str]] = []
        self.program: ProgramModule
        self._first_inputs: list[tuple[Any, ...]] = []
        self.expectations: list[Expectation] = []
        self.refused: str | None = None
        """Why eager attention is refused by design, where it is."""
        self.eager: list[Run] = []
        self._refused_choices = RefusedChoices()
        self.judges: list[Oracle] = [oracle(self) for oracle in self.oracles]

    def go(self) -> None:
        """Raises `Failed`, `Rejected` or `NotRun`; returns if the program passed."""
        stop = self.settings.get("stopping_at")
        stopping = layers.stopping_at(stop) if stop else nullcontext()
        with self.phases.reporting_compiles(), stopping:
            setup.set_up(self.settings, self.phases)
            if self.settings.get("only_setup"):
                return
            self._build()
            self._reference()
            try:
                self._eager()
            except Rejected as refusal:
                if not self._compiles_refused():
                    raise
                self.refused = refusal.why
                self.phases.refused(refusal.why)
            if self.compile is None:
                return
            if self.program.compiled is None:
                raise ValueError("the job asks to compile, but the source defines no `compiled`")
            self._compiled()
            if self.refused is not None:
                raise Rejected(self.refused)

    def _compiles_refused(self) -> bool:
        """Whether to compile what eager attention refuses by design: the compiler may refuse it
        too, or do it right, but not break over it."""
        alone = (self.settings.get("oracles") or {}).get("eager_alone", True)
        return self.compile is not None and bool(self.expectations) and not alone

    @property
    def kernels(self) -> list[Data]:
        """What was compiled for a card."""
        return []

    # -- phases ------------------------------------------------------------------------------

    def _build(self) -> None:
        self.phases.enter("build")
        with self._exceptions("build", None):
            self.program = self._loaded_program()
            self._first_inputs = [self.program.inputs(c) for c in range(len(self.program.calls))]

    def _loaded_program(self) -> ProgramModule:
        """The program, loaded anew."""
        if ranks := self.settings.get("simulated"):
            from attnfuzz.actors.child.simulation.module import SimulatedModule

            return SimulatedModule(self.source, ranks)
        if dist.is_available() and dist.is_initialized():  # it makes its group anew
            dist.destroy_process_group()
        return ProgramModule(self.source)

    def _reference(self) -> None:
        if not any(oracle.needs_reference for oracle in self.judges):
            return
        self.phases.enter("reference")
        with self._exceptions("reference", None):
            for call in range(len(self.program.calls)):
                first = self._first_inputs.pop(0)
                args = self.program.inputs(call) if self.program.rewrites else first
                expectation = Expectation(
                    self.program, call, args, self.settings.get("compute_dtype"), self._flushes
                )
                self.expectations.append(expectation)
                self.skipped |= expectation.skipped

    @property
    def _flushes(self) -> bool:
        return bool((self.settings.get("oracles") or {}).get("denormal"))

    def _eager(self) -> None:
        self.phases.enter("eager")
        for call in range(len(self.program.calls)):
            run = self._run(self.program.attention, call, "eager")
            self._check(run)
            self.eager.append(run)
            if not self.program.is_redrawn(call):
                self._check_again(run)
        for oracle in self.judges:
            oracle.after_eager()

    def _compiled(self) -> None:
        assert self.compile is not None and self.program.compiled is not None
        torch._dynamo.utils.counters.clear()
        log, code = CompilerLog(self.source), features.GeneratedCode()
        self.phases.enter("compile")
        try:
            reporting = ahead.reporting(self.compile, self.phases)
            noting = self._refused_choices.noting()
            with self._features(log, code), code.collecting(), noting, reporting:
                self._calls(self.program.compiled, log, layers.own(self.compile))
        except Failed as failed:
            data = failed.failure
            if data["kind"] in ("wrong_result", "nonfinite", "nondeterminism") and code.texts:
                data["evidence"]["generated code"] = code.text()[:EXCERPT]
            if self._blames_layer(data):
                self.phases.enter("check")
                data["layer"] = layers.blame(self.compile, data, self._rerun)
            raise

    def _blames_layer(self, failure: Data) -> bool:
        """Whether to look for the layer that a failure comes from, by running the program again."""
        return bool(self.settings.get("layers", True))

    @contextmanager
    def _features(self, log: CompilerLog, code: features.GeneratedCode) -> Iterator[None]:
        """Notes what the compiler did inside, however that ends."""
        try:
            yield
        finally:
            if self.settings.get("features", True):
                self.features = features.of_compiler(log, code)

    def _calls(self, compiled: Callable[..., Any], log: CompilerLog, layer: str) -> None:
        """Every call in turn with its checks, then the last one again."""
        for call in range(len(self.program.calls)):
            with log.listening() if call == 0 else log.going_on():
                run = self._run(compiled, call, layer, log)
            self.phases.enter("check")
            self._check(run)
        self.phases.enter("forward")
        if self.refused is None:
            self._check_again(run)

    def _rerun(self, backend: str) -> Data | None:
        """The failure of the program when compiled with another backend, if any."""
        assert self.compile is not None
        torch._dynamo.reset()
        layer = layers.OWN.get(backend, "inductor")
        try:
            with layers.stopping_at(backend), self.phases.reporting_compiles():
                self._calls(self._again(backend), CompilerLog(self.source), layer)
        except Failed as failed:
            return failed.failure
        except Rejected:
            return None
        return None

    def _again(self, backend: str) -> Callable[..., Any]:
        """The attention function compiled anew, and reached as the program reaches it."""
        assert self.compile is not None
        if self.compile.get("via", "compile") != "compile":
            compiled = self._loaded_program().compiled
            assert compiled is not None
            return compiled
        return torch.compile(
            self.program.attention,
            backend=backend,
            fullgraph=self.compile.get("fullgraph", False),
            dynamic=self.compile.get("dynamic"),
        )

    # -- one run -----------------------------------------------------------------------------

    def _run(
        self, function: Callable[..., Any], call: int, layer: str, log: CompilerLog | None = None
    ) -> Run:
        """One run on fresh arguments, up to the checks of what it gave."""
        args = self._given(self.program.inputs(call))
        names = self.program.argument_names(len(args))
        run = Run(function, call, layer, args, names, log)
        for oracle in self.judges:
            oracle.before_run(run)
        outputs = self._called(function if log is None else log.watching(function), args, layer)
        for oracle in self.judges:
            oracle.after_run(run)
        accumulates = bool((self.settings.get("oracles") or {}).get("accumulates"))
        run.described = metadata.describe(outputs, args, names, accumulates)
        run.outputs = self._numbers(outputs)
        return run

    def outputs(self, function: Callable[..., Any], args: tuple[Any, ...], layer: str) -> Outputs:
        """What one more run gives, on arguments as `ProgramModule.inputs` makes them."""
        return self._numbers(self._called(function, self._given(args), layer))

    def _given(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments as the function is given them."""
        return args

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], layer: str) -> Outputs:
        if layer != "eager":
            self.phases.enter("forward" if self.phases.now != "compile" else "compile")
        marked = self.phases.marking(self._waiting(function), announce=layer != "eager")
        with self._exceptions("eager" if layer == "eager" else "forward", layer):
            return self._finished(self.program.runner(layer)(marked, args))

    def _waiting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The attention function, returning once its results are computed."""
        return function

    def _finished(self, outputs: Outputs) -> Outputs:
        """What a run gave, once it is all computed."""
        return outputs

    def _numbers(self, outputs: Outputs) -> Outputs:
        """The outputs on the CPU."""
        return outputs

    # -- checks ------------------------------------------------------------------------------

    def _check(self, run: Run) -> None:
        if self.refused is not None:  # there is no eager run to compare with
            numbers.check_numbers(self, run.outputs, run.call, run.layer, None)
            return
        for oracle in self.judges:
            oracle.check(run)

    def _check_again(self, run: Run) -> None:
        for oracle in self.judges:
            oracle.check_again(run)

    # -- exceptions --------------------------------------------------------------------------

    @contextmanager
    def _exceptions(self, phase: str, layer: str | None) -> Iterator[None]:
        """Turns whatever the program raises into `Rejected` or `Failed`."""
        try:
            yield
        except (Failed, Rejected):
            raise
        except BaseException as error:  # a program may raise SystemExit too
            self._judge_exception(error, phase, layer)

    def _judge_exception(self, error: BaseException, phase: str, layer: str | None) -> NoReturn:
        why = None if phase == "reference" else self._refusal(error, layer)
        if why is not None:
            raise Rejected(why) from None
        raised = exceptions.describe(error, self.source)
        if layer in (None, "eager"):  # the inputs or eager attention may compile a BlockMask
            compiling = phase != "reference" and failure_kinds.in_inductor(error)
            layer = "inductor" if compiling else layer
        else:
            compiling = failure_kinds.is_compiling(error)
        if compiling:
            phase = "compile"
        elif layer is not None and self.phases.returned:
            phase = "backward"
        if self.refused is not None and not failure_kinds.is_internal(error, raised):
            raise Rejected(self.refused) from None
        kind = failure_kinds.kind_of(error, compiling=compiling)
        evidence = {"traceback": exceptions.stack(error)}
        self._refused_choices.explain(raised, evidence, self.source)
        if compiling and failure_kinds.in_backward_graph(error):
            evidence["graph"] = BACKWARD
        raise Failed(
            failure(
                kind,
                phase,
                layer=layer,
                oracle=self._oracle_of(phase, raised),
                raised=raised,
                evidence=evidence,
            )
        ) from None

    @staticmethod
    def _oracle_of(phase: str, raised: Data) -> str:
        """What a failure to build or to compute the reference shows is a defect of ours, unless
        torch raised it while making a BlockMask."""
        ours = phase in ("build", "reference") and not any(
            frame["file"] == BLOCK_MASKS for frame in raised["frames"]
        )
        return "harness" if ours else "refusal"

    def _refusal(self, error: BaseException, layer: str | None) -> str | None:
        """Why the exception is by design, or None."""
        sentences = exceptions.sentences(error)
        if (why := self.refusal_of(sentences)) is not None:
            return why
        if layer not in (None, "eager") and "FailOnRecompileLimitHit" in "\n".join(sentences):
            dynamic = (self.compile or {}).get("dynamic")
            each = (self.settings.get("oracles") or {}).get("shapes") or 1
            if limit_is_the_programs(calls_of(self), dynamic, each):
                return "more static shapes than dynamo's recompile limit"
        return None

    def refusal_of(self, sentences: list[str]) -> str | None:
        """Why one of the sentences, "Type: message" each, is a refusal by design."""
        for refusal in self.settings.get("refusals") or ():
            if any(re.search(refusal["pattern"], sentence) for sentence in sentences):
                return str(refusal["why"])
        return None

"""A program's way through the child: build, reference, eager, compiled, blame."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch

from attnfuzz.actors.child import exceptions, features, kinds, layers, setup
from attnfuzz.actors.child.outcomes import Data, Failed, Rejected, failure
from attnfuzz.actors.child.phases import Phases
from attnfuzz.actors.child.program_module import Outputs, ProgramModule
from attnfuzz.actors.oracles import determinism, hygiene, metadata
from attnfuzz.actors.oracles import numbers as values
from attnfuzz.actors.oracles.metamorphic import permuted_batch
from attnfuzz.actors.oracles.purity import Purity

EXCERPT = 12_000
BACKWARD = "backward"
BLOCK_MASKS = "torch/nn/attention/flex_attention.py"


class Execution:
    """One program. `settings` is the job; see docs/ARCHITECTURE.md and `actors.sandbox.job.Job`."""

    def __init__(self, settings: Data, phases: Phases) -> None:
        self.settings, self.phases = settings, phases
        self.source = Path(settings["source"])
        self.compile: Data | None = settings.get("compile")
        self.skipped: dict[str, str] = {}
        self.features: list[str] = []
        self.program: ProgramModule
        self._first_inputs: list[tuple[Any, ...]] = []
        self.expectations: list[values.Expectation] = []
        self.eager: list[Outputs] = []
        self.described: list[dict[str, Data]] = []

    def go(self) -> None:
        """Raises `Failed`, `Rejected` or `NotRun`; returns if the program passed."""
        with self.phases.telling_compiles():
            setup.set_up(self.settings, self.phases)
            if self.settings.get("only_setup"):
                return
            self._build()
            self._reference()
            self._eager()
            if self.compile is None:
                return
            if self.program.compiled is None:
                raise ValueError("the job asks to compile, but the source defines no `compiled`")
            self._compiled()

    @property
    def kernels(self) -> list[Data]:
        """What was compiled for a card."""
        return []

    # -- phases ------------------------------------------------------------------------------

    def _build(self) -> None:
        self.phases.enter("build")
        with self._exceptions("build", None):
            self.program = ProgramModule(self.source)
            self._first_inputs = [self.program.inputs(c) for c in range(len(self.program.calls))]

    def _reference(self) -> None:
        self.phases.enter("reference")
        with self._exceptions("reference", None):
            for call in range(len(self.program.calls)):
                args = self._first_inputs.pop(0)
                expectation = values.Expectation(
                    self.program, call, args, self.settings.get("compute_dtype")
                )
                self.expectations.append(expectation)
                self.skipped |= expectation.skipped

    def _eager(self) -> None:
        self.phases.enter("eager")
        for call in range(len(self.program.calls)):
            outputs, described = self._run(self.program.attention, call, "eager")
            self._check_meaning(outputs, call)
            self._check_values(outputs, call, "eager", None)
            self.eager.append(outputs)
            self.described.append(described)
            self._check_determinism(self.program.attention, outputs, call, "eager")
        self._check_batch_permutation()

    def _compiled(self) -> None:
        assert self.compile is not None and self.program.compiled is not None
        torch._dynamo.utils.counters.clear()
        log, code = hygiene.CompilerLog(self.source), features.GeneratedCode()
        self.phases.enter("compile")
        try:
            with self._features(log, code), code.collecting():
                self._calls(self.program.compiled, log, self.compile["backend"])
        except Failed as failed:
            data = failed.failure
            if data["kind"] in ("wrong_result", "nonfinite", "nondeterminism") and code.texts:
                data["evidence"]["generated code"] = code.text()[:EXCERPT]
            if self._blames_layer(data):
                self.phases.enter("check")
                data["layer"] = layers.blame(self.compile["backend"], data, self._rerun)
            raise

    def _blames_layer(self, failure: Data) -> bool:
        """Whether to look for the layer that a failure comes from, by running the program again."""
        return bool(self.settings.get("layers", True))

    @contextmanager
    def _features(self, log: hygiene.CompilerLog, code: features.GeneratedCode) -> Iterator[None]:
        """Notes what the compiler did inside, however that ends."""
        try:
            yield
        finally:
            if self.settings.get("features", True):
                self.features = features.of_compiler(log, code)

    def _calls(self, compiled: Callable[..., Any], log: hygiene.CompilerLog, backend: str) -> None:
        """Every call in turn with its checks, then the last one again."""
        layer = layers.OWN.get(backend, "inductor")
        outputs: Outputs = {}
        for call in range(len(self.program.calls)):
            with log.listening() if call == 0 else log.going_on():
                outputs, described = self._run(log.watching(compiled), call, layer)
            self.phases.enter("check")
            self._check_hygiene(log, call, layer)
            self._check_metadata(described, outputs, call, layer)
            self._check_values(outputs, call, layer, self.eager[call])
        last = len(self.program.calls) - 1
        self.phases.enter("forward")
        self._check_determinism(compiled, outputs, last, layer)

    def _rerun(self, backend: str) -> Data | None:
        """The failure of the program when compiled with another backend, if any."""
        assert self.compile is not None
        torch._dynamo.reset()
        compiled = torch.compile(
            self.program.attention,
            backend=backend,
            fullgraph=self.compile.get("fullgraph", False),
            dynamic=self.compile.get("dynamic"),
        )
        try:
            with self.phases.telling_compiles():
                self._calls(compiled, hygiene.CompilerLog(self.source), backend)
        except Failed as failed:
            return failed.failure
        except Rejected:
            return None
        return None

    # -- one run -----------------------------------------------------------------------------

    def _run(
        self, function: Callable[..., Any], call: int, layer: str
    ) -> tuple[Outputs, dict[str, Data]]:
        """One run on fresh arguments, which must leave them and the global state alone."""
        args = self.program.inputs(call)
        names = self.program.argument_names(len(args))
        purity = Purity(args, names)
        outputs = self._outputs(function, args, layer)
        self._fail_on("mutation", "purity", purity.differences(call), layer)
        return outputs, metadata.describe(outputs, args, names)

    def _outputs(self, function: Callable[..., Any], args: tuple[Any, ...], layer: str) -> Outputs:
        if layer != "eager":
            self.phases.enter("forward" if self.phases.now != "compile" else "compile")
        marked = self.phases.marking(function, announce=layer != "eager")
        with self._exceptions("eager" if layer == "eager" else "forward", layer):
            return self._finished(self.program.run(marked, args))

    def _finished(self, outputs: Outputs) -> Outputs:
        """What a run gave, once it is all computed."""
        return outputs

    # -- checks ------------------------------------------------------------------------------

    def _check_meaning(self, outputs: Outputs, call: int) -> None:
        expectation = self.expectations[call]
        dtype = None
        if expectation.out_dtype is not None and expectation.yardstick is not None:
            meant = expectation.yardstick.get("out")
            dtype = meant.dtype if isinstance(meant, torch.Tensor) else None
        found = metadata.against_meaning(expectation.expected, outputs, dtype, call)
        self._fail_on("metadata_mismatch", "metadata", found, "eager")

    def _check_metadata(
        self, described: dict[str, Data], outputs: Outputs, call: int, layer: str
    ) -> None:
        found = metadata.missing(self.eager[call], outputs, call)
        found += metadata.differences(self.described[call], described, call)
        self._fail_on("metadata_mismatch", "metadata", found, layer)

    def _check_values(self, outputs: Outputs, call: int, layer: str, eager: Outputs | None) -> None:
        expectation = self.expectations[call]
        judgement = values.judge(expectation, outputs, eager)
        self.skipped |= expectation.skipped
        kind, oracle = "wrong_result", "numbers"
        if judgement.nonfinite:
            kind, oracle = "nonfinite", "finiteness"
        self._fail_on(kind, oracle, judgement.diffs, layer, judgement.evidence)

    def _check_determinism(
        self, function: Callable[..., Any], first: Outputs, call: int, layer: str
    ) -> None:
        if not self.settings.get("deterministic", True):
            self.skipped["determinism"] = "the kernel is documented not to be deterministic"
            return
        second = self._outputs(function, self.program.inputs(call), layer)
        found = determinism.differences(first, second, call)
        self._fail_on("nondeterminism", "determinism", found, layer)

    def _check_batch_permutation(self) -> None:
        if not (self.settings.get("oracles") or {}).get("batch_permutable"):
            self.skipped["batch_permutation"] = "the job does not say that batches are independent"
            return
        args = self.program.inputs(0)
        permuted = permuted_batch(args)
        if permuted is None:
            self.skipped["batch_permutation"] = "there is one batch"
            return
        outputs = self._outputs(self.program.attention, permuted, "eager")
        restored = {"out": outputs["out"].flip(0)}
        self._check_values({**self.eager[0], **restored}, 0, "eager", self.eager[0])

    def _check_hygiene(self, log: hygiene.CompilerLog, call: int, layer: str) -> None:
        assert self.compile is not None
        dynamic, calls = self.compile.get("dynamic"), self.program.calls
        evidence = {"recompile reasons": "\n".join(log.recompiles())}
        if hygiene.limit_was_asked_for(calls, dynamic):
            self.skipped["hygiene"] = "more static shapes than dynamo's recompile limit"
            return
        found = hygiene.too_many_compilations(log, calls, dynamic, call)
        self._fail_on("recompile_limit", "hygiene", found, layer, evidence)
        kind = "recompile_limit" if log.gave_up else "graph_break"
        if (self.settings.get("oracles") or {}).get("disables"):  # the program breaks it itself
            log.graph_breaks = [r for r in log.graph_breaks if "torch.compiler.disable" not in r]
        if not log.gave_up:
            evidence["graph breaks"] = "\n\n".join(log.graph_breaks)
            self._refuse_breaks(log.graph_breaks)
            self._fail_on(kind, "hygiene", log.broken(call), layer, evidence)
        self._fail_on(kind, "hygiene", log.fallen_back(call), layer, evidence)

    def _refuse_breaks(self, reasons: list[str]) -> None:
        """Raises `Rejected` where a graph break is for a reason that is a refusal by design."""
        for reason in reasons:
            why = self._refusal_of([f"torch._dynamo.exc.Unsupported: {reason}"])
            if why is not None:
                raise Rejected(why)

    def _fail_on(
        self,
        kind: str,
        oracle: str,
        diffs: list[Data],
        layer: str,
        evidence: dict[str, str] | None = None,
    ) -> None:
        if diffs:
            raise Failed(
                failure(kind, "check", layer=layer, oracle=oracle, diffs=diffs, evidence=evidence)
            )

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
            compiling = phase != "reference" and kinds.in_inductor(error)
            layer = "inductor" if compiling else layer
        else:
            compiling = kinds.is_compiling(error)
        if compiling:
            phase = "compile"
        elif layer is not None and self.phases.returned:
            phase = "backward"
        kind = kinds.kind_of(error, compiling=compiling)
        evidence = {"traceback": exceptions.stack(error)}
        if compiling and kinds.in_backward_graph(error):
            evidence["graph"] = BACKWARD
        raise Failed(
            failure(
                kind,
                phase,
                layer=layer,
                oracle=self._accuser(phase, raised),
                raised=raised,
                evidence=evidence,
            )
        ) from None

    @staticmethod
    def _accuser(phase: str, raised: Data) -> str:
        """What a failure to build or to compute the reference shows is a defect of ours, unless
        torch raised it while making a BlockMask."""
        ours = phase in ("build", "reference") and not any(
            frame["file"] == BLOCK_MASKS for frame in raised["frames"]
        )
        return "harness" if ours else "refusal"

    def _refusal(self, error: BaseException, layer: str | None) -> str | None:
        """Why the exception is by design, or None."""
        sentences = exceptions.sentences(error)
        if (why := self._refusal_of(sentences)) is not None:
            return why
        if layer not in (None, "eager") and "FailOnRecompileLimitHit" in "\n".join(sentences):
            dynamic = (self.compile or {}).get("dynamic")
            if hygiene.limit_was_asked_for(self.program.calls, dynamic):
                return "more static shapes than dynamo's recompile limit"
        return None

    def _refusal_of(self, sentences: list[str]) -> str | None:
        """Why one of the sentences, "Type: message" each, is a refusal by design."""
        for refusal in self.settings.get("refusals") or ():
            if any(re.search(refusal["pattern"], sentence) for sentence in sentences):
                return str(refusal["why"])
        return None

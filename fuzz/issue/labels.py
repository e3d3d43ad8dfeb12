"""The labels that torch's maintainers would likely put on an issue, by their own triage rubric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from attnfuzz.corpus.severity import Severity, below_default_tolerance, refuses
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Failure, FailureKind, Layer
from attnfuzz.generators.model.program import Program

RARE = 20
"""How strange a program is from which on the rubric calls it rare."""

SILENT_OR_DEADLY = (
    FailureKind.WRONG_RESULT, FailureKind.NONFINITE, FailureKind.MUTATION, FailureKind.CRASH,
    FailureKind.ILLEGAL_ACCESS,
)  # fmt: skip


@dataclass(frozen=True)
class Label:
    """A label, and why."""

    name: str
    why: str


def labels(
    program: Program,
    failure: Failure,
    severity: Severity,
    *,
    device: str = "cpu",
    stands: bool | None = None,
    ablation: Mapping[str, str],
) -> list[Label]:
    """The labels, each once. `stands`: whether the failure shows at default tolerances, None where
    no number decides; `ablation`: what variants of the program did, by name."""
    every = [
        *_layers(failure, device, ablation),
        *_parts(program, failure),
        *_kinds(program, failure, severity, stands),
    ]
    return list({label.name: label for label in every}.values())


def compiles(failure: Failure) -> bool:
    """Whether the failure is the compiler's: not eager torch's, nor of what comes before."""
    return failure.layer not in (None, Layer.EAGER)


def _layers(failure: Failure, device: str, ablation: Mapping[str, str]) -> Iterator[Label]:
    if not compiles(failure):
        return
    yield Label("oncall: pt2", "the form sets it")
    match failure.layer:
        case Layer.EXPORT:
            yield Label("oncall: export", "fails in torch.export")
        case Layer.DYNAMO:
            yield Label("module: dynamo", 'fails with backend="eager"')
        case Layer.AOT_EAGER:
            yield Label("module: pt2-dispatcher", 'fails with "aot_eager", not with "eager"')
        case Layer.INDUCTOR if device == "cpu":
            yield Label("oncall: cpu inductor", "fails with Inductor alone, on the CPU")
        case Layer.INDUCTOR:
            yield Label("module: inductor", 'fails with "inductor", not with "aot_eager"')
    if ablation.get("dynamic=False") == "passes":
        yield Label("module: dynamic shapes", "dynamic=False passes")


def _parts(program: Program, failure: Failure) -> Iterator[Label]:
    for name in plugin_of(program).labels:
        yield Label(name, "its kernel")
    if program.mesh is not None:
        yield Label("module: dtensor", "DTensors")
        if not compiles(failure):
            yield Label("oncall: distributed", "DTensor fails without a compiler")
    if program.transform != "none":
        yield Label("module: functorch", f"torch.func's {program.transform}")
        if compiles(failure):
            yield Label("dynamo-functorch", "compiled")
    if program.surround.checkpoint != "none":
        yield Label("module: checkpoint", "an activation checkpoint")


def _kinds(
    program: Program, failure: Failure, severity: Severity, stands: bool | None
) -> Iterator[Label]:
    if failure.kind is FailureKind.NONDETERMINISM:
        yield Label("module: determinism", "the same call gives other bits")
    if failure.kind is FailureKind.COMPILE_TIME:
        yield Label("module: startup-compile-tracing time", "compile time")
    if refuses(failure):
        yield Label("module: error checking", "an error in place of a refusal")
    if stands is not False:
        yield Label("topic: fuzzer", "found by a fuzzer, at default tolerances")
    if stands is False or below_default_tolerance(failure):
        yield Label("module: numerical-stability", "not seen at default tolerances")
    if _extreme(program):
        yield Label("module: edge cases", "extreme values; may be closed")
    if severity.strangeness >= RARE:
        yield Label("low priority", f"complex and rare, {severity.strangeness}")
    elif failure.kind in SILENT_OR_DEADLY and stands is not False:
        yield Label("triage review", "a silent wrong result, or a crash")


def _extreme(program: Program) -> bool:
    extremes = (".nan", ".inf", ".denormal", ".huge", ".scale.0", ".scale.negative")
    return any(feature.endswith(extremes) for feature in features(program))

"""The text of an issue, as its receiver's form asks for it. A person completes and files it."""

from __future__ import annotations

from dataclasses import dataclass

from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.nearest import nearest
from attnfuzz.corpus.severity import DEFAULT_TOLERANCE
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.environment import version
from attnfuzz.fuzz.issue.bisection import CROSSREF, calls_flex
from attnfuzz.fuzz.issue.evidence import Evidence
from attnfuzz.fuzz.issue.labels import compiles, labels
from attnfuzz.fuzz.issue.versions import versions
from attnfuzz.fuzz.report.bucket import Page
from attnfuzz.fuzz.report.counted import counted
from attnfuzz.fuzz.report.markdown import render
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.outcome import EAGER_REFUSES, FailureKind

NEW = "https://github.com/{}/issues/new"


@dataclass(frozen=True)
class Form:
    """A receiver's form: the template that fills it in, where it is; whether it is about
    the compiler, and then asks for error logs in a field of their own; what is to be known of the
    tracker of a package."""

    template: str
    link: str
    compiler: bool = False
    advice: str = ""


PT2 = Form("issue_pytorch.md", NEW.format("pytorch/pytorch") + "?template=pt2-bug-report.yml", True)
EAGER = Form("issue_pytorch.md", NEW.format("pytorch/pytorch") + "?template=bug-report.yml")
FLASH_ATTN = Form(
    "issue_flash_attn.md",
    NEW.format("Dao-AILab/flash-attention"),
    advice=" (it has no form and no labels of its own). CuTe and CUDA kernels need a card: what "
    "ran over the Triton back-end, interpreted on a CPU, says nothing about them.",
)
TORCH_NPU = Form("issue_torch_npu.md", NEW.format("Ascend/pytorch"))

SYSTEMS = {
    "transformers": "huggingface/transformers",
    "torchtitan": "pytorch/torchtitan",
    "diffusers": "huggingface/diffusers",
    "yunchang": "feifeibear/long-context-attention",
    "attn_gym": "meta-pytorch/attention-gym",
    "torchtune": "meta-pytorch/torchtune",
    "ring_flash_attn": "zhuzilin/ring-flash-attention",
}
"""The trackers of packages whose text is that of flash-attention's."""

NEWEST = ". Try the newest release first, and put the text into the tracker's own form."

OF_PACKAGE = {
    "flash_attn": FLASH_ATTN,
    "torch_npu": TORCH_NPU,
    **{
        name: Form("issue_flash_attn.md", NEW.format(tracker), advice=NEWEST)
        for name, tracker in SYSTEMS.items()
    },
}
"""By the package that a kernel comes in."""


def form_of(page: Page) -> Form:
    """The form of whoever gets this issue."""
    package = plugin_of(page.program).package
    if package is not None:
        return OF_PACKAGE[package]
    return PT2 if compiles(page.failure) else EAGER


def issue_text(page: Page, evidence: Evidence) -> str:
    """The text about `page`, of what was run as `evidence` says."""
    form, severity = form_of(page), page.severity
    title = signature(page.failure, page.program).title
    device = TARGETS[page.row.target].device
    return render(
        form.template,
        form=form,
        severity=severity,
        title=f"{title} on {device.upper()}",
        fuzzer=f"attnfuzz {version('attnfuzz')}",
        labels=labels(
            page.program, page.failure, severity,
            device=device, stands=evidence.stands, ablation=evidence.ablation,
        ),
        what=_what(page, title),
        script=evidence.script.text,
        ran=_ran(evidence),
        compared=_compared(page, evidence),
        diffs=page.failure.diffs,
        ablation=[(_setting(name), result) for name, result in evidence.ablation.items()],
        bisection=evidence.bisection,
        no_bisection=evidence.no_bisection,
        left_out=CROSSREF if calls_flex(evidence.script) else "",
        ordinary=_ordinary(page),
        versions=_versions(page, evidence),
        near=nearest(page.failure, page.program, page.environment),
        log=evidence.log,
        collected=evidence.collected,
        place=_place(page, evidence),
        torch=evidence.environment.get("torch", "unknown"),
        npu=evidence.environment.get("torch-npu", "unknown"),
    )  # fmt: skip


def _what(page: Page, title: str) -> str:
    """What happens, in two sentences."""
    failure, layer = page.failure, page.failure.layer
    where = f", first at layer {layer.value}" if layer is not None else ""
    said = {
        FailureKind.WRONG_RESULT: "The result is wrong, without an error",
        FailureKind.NONFINITE: "The result is not finite where it should be, without an error",
        FailureKind.CRASH: "The process dies",
        FailureKind.METADATA_MISMATCH: "The result has other metadata than it should have",
    }.get(failure.kind, f"It fails ({failure.kind.value.replace('_', ' ')})")
    eager = (
        " Eager torch refuses this program in words." if EAGER_REFUSES in failure.evidence else ""
    )
    return f"{said}{where}: {title.rstrip(' .…')}.{eager}"


def _ran(evidence: Evidence) -> str:
    torch = evidence.environment.get("torch", "unknown")
    return (
        f"This code was run as it stands with torch {torch}, each time in a clean process, and "
        f"failed as it says in {evidence.failures} of {counted(evidence.runs, 'run')}."
    )


def _compared(page: Page, evidence: Evidence) -> str:
    """How it fares at default tolerances, and why it is still one where it does not stand."""
    if evidence.stands is None:
        return "No number decides: there is nothing to compare at a tolerance."
    if evidence.script.way == "flash_attn":
        return (
            "The error is more than twice that of the same computation in low-precision torch, "
            "plus the absolute floor of flash-attention's own tests."
        )
    if evidence.stands:
        return (
            "The failure stands at default tolerances: torch._dynamo.utils.same says so, with a "
            "float64 reference and the seed reset before each call."
        )
    return (
        "The failure does not stand at default tolerances: torch._dynamo.utils.same, at "
        f"{DEFAULT_TOLERANCE:g} and with a float64 reference, takes the result for the same. The "
        f"script has a budget of its own instead{_why_still(page)}."
    )


def _why_still(page: Page) -> str:
    diff = next((one for one in page.failure.diffs if one.error and one.budget), None)
    if diff is None or diff.error is None or diff.budget is None:
        return ": what is wrong is no matter of how much"
    times = diff.error / (diff.budget / 10)
    return (
        ", ten times the error of the same operations done plainly in the same dtype. "
        f"{diff.output} is off by {diff.error:.3g}, {times:.0f} times that error, which rounding "
        "does not explain"
    )


def _ordinary(page: Page) -> str:
    severity = page.severity
    if not severity.uncommon:
        return "Nothing in the program is uncommon in models."
    things = "; ".join(f"{one.what} (weight {one.weight})" for one in severity.uncommon)
    verdict = "Nearly ordinary" if severity.ordinary else "Not ordinary"
    minimized = " No simplification of it that attnfuzz tried still fails in this way."
    return f"{verdict}: {things}.{minimized if page.cases else ''}"


def _setting(name: str) -> str:
    """A variant's name as torch.compile's arguments."""
    key, _, value = name.partition("=")
    if key == "layer" and value == "eager":
        return "without torch.compile"
    return f'backend="{"eager" if value == "dynamo" else value}"' if key == "layer" else name


def _versions(page: Page, evidence: Evidence) -> list[tuple[str, str]]:
    found = versions(page)
    torch = evidence.environment.get("torch", "unknown")
    here = f"fails in {evidence.failures}/{evidence.runs} clean processes"
    found[torch] = f"{found[torch]}, {here}" if torch in found else here
    return sorted(found.items())


def _place(page: Page, evidence: Evidence) -> str:
    """On what it ran, with the package of the kernel."""
    cpu = evidence.environment.get("cpu", "a CPU")
    of_card = plugin_of(page.program).package is not None
    return f"{cpu}: over a stand-in or an interpreter, not on a card" if of_card else cpu

"""Everything about one bucket: on the terminal, as data, and as text for an issue tracker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.confirmation import Confirmation
from attnfuzz.corpus.decisions.events import Event
from attnfuzz.corpus.severity import Severity, severity
from attnfuzz.fuzz.report.escape import plain
from attnfuzz.fuzz.report.markdown import render
from attnfuzz.fuzz.report.outcome import failure_text, outcome_json
from attnfuzz.fuzz.report.releases import Release
from attnfuzz.fuzz.report.tables import Row, facts, row_json
from attnfuzz.generators.model.codec import dump_program, to_data
from attnfuzz.generators.model.outcome import Failure, Outcome
from attnfuzz.generators.model.program import Program


@dataclass(frozen=True, kw_only=True)
class Page:
    """A bucket, or a failure that has none, and what speaks for it: the minimized program, its
    failure, its script's text, and where it ran. `variants`: what the program's variants did, by
    name. `releases`: what is known of its cases with each torch. `related`: buckets that may have
    the same cause. `preload`: the names of the files that are loaded before it."""

    row: Row
    program: Program
    failure: Failure
    repro: str
    environment: Mapping[str, str]
    bucket: Bucket | None = None
    variants: Mapping[str, str] = field(default_factory=dict)
    related: tuple[Bucket, ...] = ()
    cases: tuple[str, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    preload: tuple[str, ...] = ()
    history: tuple[Event, ...] = ()
    releases: tuple[Release, ...] = ()

    @property
    def severity(self) -> Severity:
        """How bad it is, and how ordinary the program."""
        return severity(self.failure, self.program)

    @property
    def virtual(self) -> str | None:
        """Of a virtual target's finding, what was seen and what would confirm it, or has said."""
        target = TARGETS.get(self.row.target)
        if target is None or target.stand_in is None:
            return None
        done = f"{target.stand_in.treatment} ({target.name})"
        ran = target.stand_in.kernels
        if self.confirmations:
            shown = "; ".join(map(str, self.confirmations))
            return f"{done}, {ran}; {shown}"
        what = "script" if self.repro else "program"
        return (
            f"{done} on a machine without one, {ran}; the "
            f"{what} below, on a machine with that card, confirms or refutes it"
        )

    @property
    def no_script(self) -> str | None:
        """What to do where there is no script."""
        if self.repro:
            return None
        on = "" if self.row.target == DEFAULT else f" --target {self.row.target}"
        how = (
            f"`attnfuzz run program.yaml{on}` runs this program, and "
            "`attnfuzz render program.yaml` gives it as a module."
        )
        if self.row.state == "known":
            there = f"; {self.row.where} holds its case" if self.row.where else ""
            return f"No script was made of it, since it was known before{there}. {how}"
        return f"There is no script of it yet. {how}"


def page_text(page: Page) -> RenderableType:
    """The page for a terminal, the script with its syntax highlighted."""
    row, parts = page.row, list[RenderableType]()
    pairs = {
        "bucket": row.id if page.bucket else "none",
        "what": row.title,
        "state": row.state,
        "fails": f"{row.reliability} fresh runs" if row.runs else "not confirmed yet",
        "script fails": f"{row.script_runs} clean processes" if row.script_runs else "not tried",
        "seen": f"{row.occurrences} times",
    }
    pairs["severity"] = f"{page.severity.score} of 100: {page.severity.words}"
    pairs["ordinary"] = page.severity.told
    if page.virtual is not None:
        pairs["virtual"] = page.virtual
    if row.regression:
        pairs["regression"] = "it passes with the campaign's baseline"
    if row.known_issue is not None:
        pairs["known"] = f"{row.known_issue} {row.thread or ''}".rstrip()
    if page.bucket is not None:
        pairs["trigger"] = ", ".join(sorted(page.bucket.trigger)) or "nothing besides the defaults"
    pairs["where"] = row.where or "not on disk yet"
    parts.append(facts(pairs))
    parts += ["", heading("failure"), failure_text(page.program, page.failure)]
    parts += [
        "",
        heading("program"),
        Syntax(dump_program(page.program).rstrip(), "yaml", theme="ansi_dark"),
    ]
    if page.repro:
        parts += ["", heading("repro.py"), Syntax(page.repro.rstrip(), "python", theme="ansi_dark")]
    else:
        parts += ["", Text(page.no_script or "")]
    if page.variants:
        parts += ["", heading("variants"), facts(dict(page.variants))]
    if page.releases:
        told = {f"torch {one.torch}": f"{one.result} ({one.since})" for one in page.releases}
        parts += ["", heading("releases"), facts(told)]
    if page.related:
        named = {bucket.id: bucket.title for bucket in page.related}
        parts += ["", heading("possibly related"), facts(named)]
    if page.history:
        parts += ["", heading("history"), Text(plain("\n".join(map(str, page.history))))]
    if page.environment:
        parts += ["", heading("environment"), facts(dict(sorted(page.environment.items())))]
    return Group(*parts)


def heading(text: str) -> Rule:
    """A line with a section's name."""
    return Rule(Text(text, style="bold"), align="left", style="dim")


def page_json(page: Page) -> dict[str, Any]:
    """The page as data."""
    outcome = Outcome(status="failed", failure=page.failure)
    return {
        **row_json(page.row),
        "virtual": page.virtual,
        "uncommon": [asdict(one) for one in page.severity.uncommon],
        "confirmations": [asdict(one) for one in page.confirmations],
        "trigger": sorted(page.bucket.trigger) if page.bucket else [],
        "aliases": list(page.bucket.aliases) if page.bucket else [],
        **outcome_json(page.program, outcome),
        "id": page.row.id,
        "program": to_data(page.program),
        "repro": page.repro,
        "variants": dict(page.variants),
        "releases": [asdict(one) for one in page.releases],
        "kin": [bucket.id for bucket in page.related],
        "cases": list(page.cases),
        "environment": dict(sorted(page.environment.items())),
        "history": [{"event": one.name, "says": str(one)} for one in page.history],
    }


def page_markdown(page: Page) -> str:
    """The page as an issue for a tracker: what happens, the script, the versions."""
    return render("issue.md", page=page, program=dump_program(page.program))

"""Everything that an issue says was run: the script as it stands, the bisector, the ablation."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from attnfuzz.actors.sandbox.job import Deadlines, launched_ranks_of
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.scripts import run_repro
from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.fuzz.campaign.save_case import portable
from attnfuzz.fuzz.issue.bisection import DEADLINE_S, answer, bisecting, no_bisection
from attnfuzz.fuzz.issue.labels import compiles
from attnfuzz.fuzz.issue.log import trimmed
from attnfuzz.fuzz.issue.shown import shows
from attnfuzz.fuzz.pool.opened import pool_in
from attnfuzz.fuzz.pool.pool import Pool
from attnfuzz.fuzz.pool.tasks import ReproRun, ReproTask
from attnfuzz.fuzz.reduce.deadlines import repro_timeout
from attnfuzz.fuzz.reduce.judges import fails_wherever
from attnfuzz.fuzz.reduce.one_program import drive
from attnfuzz.fuzz.reduce.variants import Variants, variants
from attnfuzz.fuzz.report.bucket import Page
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.render.issue_script import IssueScript, issue_script, ways

COLLECT_ENV_S = 300.0
ABLATED = ("layer=", "dynamic=")
"""How the variants are named that take the compiler apart."""


class NotShown(Exception):
    """No text can be given: its code does not fail as it would say. One sentence."""


@dataclass(frozen=True)
class Evidence:
    """What was run for an issue. `runs` and `failures` count the clean processes that ran `script`;
    `stands` says whether it fails at default tolerances (None: no number decides); `bisection` is
    the CompilerBisector's answer, else `no_bisection` why there is none (both None for what eager
    torch does); `ablation` what the program did at each layer and with dynamic shapes on and off;
    `environment` what it ran on; `log` what the script wrote, and `collected` what
    `torch.utils.collect_env` says."""

    script: IssueScript
    runs: int
    failures: int
    stands: bool | None
    bisection: str | None
    no_bisection: str | None
    ablation: Mapping[str, str]
    environment: Mapping[str, str]
    log: str
    collected: str


Progress = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """Where things are run: a toolchain's interpreter, a scratch folder that scripts share, with
    Inductor's precompiled headers, and a sandbox that has imported torch."""

    python: str
    root: Path
    pool: Pool


@contextmanager
def place(python: str) -> Iterator[Place]:
    """A place for the toolchain `python`, gone when the block ends."""
    with Scratch.create() as scratch, pool_in(scratch.root, python, ()) as pool:
        yield Place(python, scratch.root, pool)


def gather(page: Page, here: Place, runs: int, progress: Progress) -> Evidence:
    """Runs all that an issue about `page` says, the script `runs` times. Raises NotShown where that
    does not fail as recorded."""
    check_device(page)
    progress("the script, in clean processes")
    script, done = _shown(page, here, runs)
    bisection, why_not, ablation = None, None, dict[str, str]()
    if compiles(page.failure):
        progress("torch's CompilerBisector")
        bisection, why_not = _bisection(page, script, here)
        progress("each layer of the compiler, dynamic shapes on and off")
        ablation = _ablation(page, here)
    progress("torch.utils.collect_env")
    failed = [one for one in done if shows(one, script, page.failure)]
    return Evidence(
        script=script,
        runs=len(done),
        failures=len(failed),
        stands=_stands(page, script),
        bisection=bisection,
        no_bisection=why_not,
        ablation=ablation,
        environment=here.pool.environment(),
        log=trimmed(failed[-1].stderr),
        collected=collect_env(here.python),
    )


def check_device(page: Page) -> None:
    """Raises NotShown where the script needs a device, on which nothing is run yet."""
    target = TARGETS.get(page.row.target)
    if target is None or target.name != DEFAULT:
        card = target.stand_in.device if target and target.stand_in else page.row.target
        raise NotShown(
            f"{page.row.id}: its code needs a device that is not here ({card}), so that nobody has "
            "seen it fail; run it where the device is first"
        )


def _stands(page: Page, script: IssueScript) -> bool | None:
    """Whether the failure shows at default tolerances; None where no number decides."""
    if ways(page.program, page.failure) == ("itself",):
        return None
    return script.way != "itself"


def _shown(page: Page, here: Place, runs: int) -> tuple[IssueScript, list[ReproRun]]:
    """The first script that shows the failure, and how its runs ended."""
    target, ended = TARGETS[page.row.target], ""
    for way in ways(page.program, page.failure):
        script = issue_script(
            page.program,
            page.failure,
            way,
            device=target.device,
            all_ranks=target.all_ranks,
            where=target.script_note(page.program),
        )
        first = run_repro(_task(page, script.text, here, 1))
        if not shows(first[0], script, page.failure):
            ended = _ended(first[0])
            continue
        more = run_repro(_task(page, script.text, here, runs - 1)) if runs > 1 else []
        return script, [*first, *more]
    raise NotShown(
        f"{page.row.id}: with this torch its code does not fail as recorded ({ended}), so there is "
        "no issue to file"
    )


def _ended(run: ReproRun) -> str:
    last = next((line for line in reversed(run.stderr.splitlines()) if line.strip()), "")
    if run.status is None:
        return "it hangs"
    if run.status < 0:
        return f"it dies of signal {-run.status}"
    return "it passes" if run.status == 0 else f"its last line: {portable({'': last})[''][:160]}"


def _task(page: Page, text: str, here: Place, runs: int, seconds: float | None = None) -> ReproTask:
    timeout = seconds or repro_timeout(page.failure, Deadlines())
    folder, ranks = str(here.root), launched_ranks_of(page.program)
    return ReproTask(text, here.python, folder, runs, timeout, processes=ranks)


def _bisection(page: Page, script: IssueScript, here: Place) -> tuple[str | None, str | None]:
    """The bisector's answer, or why there is none."""
    why_not = no_bisection(page.program, page.failure)
    if why_not is not None:
        return None, why_not
    (run,) = run_repro(_task(page, bisecting(script, page.failure), here, 1, DEADLINE_S))
    found = answer(run.stderr)
    if found is None:
        why = f"it took more than {DEADLINE_S:.0f} s" if run.status is None else _ended(run)
        return None, f"it gave no answer: {why}"
    return found, None


def _ablation(page: Page, here: Place) -> dict[str, str]:
    """What the program did at each layer, and with dynamic shapes on and off."""
    every = variants(page.program)
    chosen = {name: program for name, program in every.items() if name.startswith(ABLATED)}
    judge = fails_wherever(page.program, Outcome(status="failed", failure=page.failure))
    stage = Variants(chosen, judge, page.row.target)
    drive(here.pool, stage)
    return {name: stage.matrix[name] for name in chosen if name in stage.matrix}


@cache
def collect_env(python: str) -> str:
    """What `python -m torch.utils.collect_env` of the toolchain says; why not, where it fails."""
    with tempfile.TemporaryDirectory(prefix="attnfuzz-collect-") as folder:
        try:
            ran = subprocess.run(
                [python, "-I", "-m", "torch.utils.collect_env"], capture_output=True, text=True,
                errors="replace", check=False, timeout=COLLECT_ENV_S, cwd=folder,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"collect_env did not end within {COLLECT_ENV_S:.0f} s"
    if ran.returncode:
        return f"collect_env failed: {ran.stderr.strip()[-500:]}"
    return ran.stdout.strip()

"""Ground truth: campaigns against planted faults, of which it is known what they should find.

Each fault is a preload file that breaks torch in one way. A campaign with a general configuration
runs against it; then every bucket's minimized program is run a few times in a torch without the
fault. A bucket whose program passes there is the fault's, and so is one of wrong numbers whose
program has right ones there, and a layout that differs, which is judged after them; one that fails
there alike is torch's own, and one that fails there somehow and is on public record; anything else
would be a false one.
"""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Annotated

import psutil
import typer
from rich.table import Table

from attnfuzz.actors.runs import RunSettings
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.store import FailureRow, Store
from attnfuzz.fuzz.campaign.config import CampaignConfig, load_config
from attnfuzz.fuzz.campaign.launch import launch
from attnfuzz.fuzz.cli.common import MAX_WORKERS, Json, console, emit
from attnfuzz.fuzz.errors import EXIT_CHANGED, EXIT_OK, UserError
from attnfuzz.fuzz.pool.opened import outcomes, pool
from attnfuzz.fuzz.pool.tasks import RunTask
from attnfuzz.fuzz.report.live import Snapshot
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.outcome import LAYOUT, Failure, FailureKind
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.strategies.seeds import derive

FAULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "planted"
CONFIG = "campaign.yaml"
OF_NUMBERS = (FailureKind.WRONG_RESULT, FailureKind.NONFINITE)

bench = typer.Typer(help="Measure attnfuzz itself.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Adds the group to the application."""
    app.add_typer(bench, name="bench")


@dataclass
class Verdict:
    """What a campaign of that `seed` made of one fault. `found_after` is CPU seconds of the
    campaign until the first bucket of the fault was recorded; `buckets` those of the fault, `torch`
    those that fail without it too, `false` the rest; `lines` the length of each repro of the
    fault."""

    fault: str
    about: str
    seed: int
    found_after: float | None = None
    programs: int = 0
    buckets: list[str] = field(default_factory=list)
    torch: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


class _Enough(Exception):
    """The fault is found and nothing is pending."""


class _CpuClock:
    """CPU seconds of this process and all below it since it was made, those included that ended and
    were waited for, a worker's share. Unlike time by the clock it does not grow with what else the
    machine does. Workers that sleep are counted at a quarter of the clock's time, so that a
    campaign of hangs ends."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._began = time.monotonic()
        self._cpu_s = 0.0
        self._before_s = self._tree_s()
        self._read_at = float("-inf")

    def __call__(self) -> float:
        now = time.monotonic()
        if now - self._read_at > 0.2:
            # A process that ends between two looks takes its time with it for a moment.
            self._cpu_s = max(self._cpu_s, self._tree_s() - self._before_s)
            self._read_at = now
        return max(self._cpu_s / self._workers, (now - self._began) / 4)

    @staticmethod
    def _tree_s() -> float:
        this = psutil.Process()
        total = 0.0
        for process in (this, *this.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])
        return total


class _Watch:
    """Remembers when each bucket was first seen, and with `early` ends a campaign when there is a
    bucket that was neither `settled` before nor is known, and whatever is pending is known.
    `elapsed_s` is the time of the campaign's launches together, a worker's share of CPU seconds;
    `again` is called before each further one."""

    def __init__(self, workers: int, early: bool, settled: Iterable[str]) -> None:
        self.first: dict[str, float] = {}
        self.elapsed_s = 0.0
        self._before_s = 0.0
        self._settled = set(settled)
        self._workers = workers
        self._early = early

    def __call__(self, snapshot: Snapshot) -> None:
        self.elapsed_s = self._before_s + snapshot.elapsed_s
        for bucket in snapshot.buckets:
            self.first.setdefault(bucket.id, self.elapsed_s * self._workers)
        new = (bucket for bucket in snapshot.buckets if bucket.known_issue is None)
        done = {bucket.id for bucket in new if bucket.state == "done"}
        if self._early and done - self._settled and snapshot.pending == snapshot.pending_known:
            self._settled |= done
            raise _Enough

    def again(self) -> None:
        self._before_s = self.elapsed_s


@bench.command()
def planted(
    faults: Annotated[
        list[str] | None, typer.Argument(help="Names of faults. Default: all there are.")
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", help="Where each fault's campaign is kept.")
    ] = Path("campaigns/planted"),
    folder: Annotated[
        Path,
        typer.Option(help="Where faults lie, and campaign.yaml, the campaign's configuration."),
    ] = FAULTS,
    cpu_minutes: Annotated[float, typer.Option(min=0.1, help="CPU-minutes per campaign.")] = 5.0,
    workers: Annotated[
        int, typer.Option(min=1, max=MAX_WORKERS, help="Workers, one CPU each.")
    ] = 2,
    seed: Annotated[
        int, typer.Option(min=0, help="Each campaign has a seed of its own that follows from it.")
    ] = 11,
    repeat: Annotated[int, typer.Option(min=1, max=100, help="Campaigns per fault.")] = 1,
    early: Annotated[
        bool, typer.Option("--early", help="End a campaign once something is found and minimized.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a campaign against each planted fault and say what it found.

    CPU-minutes are those of all processes together, whatever else the machine does.

    `attnfuzz bench planted sdpa_leak graph_break_gqa --repeat 3`
    `attnfuzz bench planted --folder benchmarks/planted_gpu --cpu-minutes 10`

    Exit codes: 0 when every campaign found its fault, with no false bucket; 1 otherwise; 2 on bad
    input.
    """
    files = _files(folder, faults)
    base = load_config(folder / CONFIG, minutes=cpu_minutes / workers, workers=workers, seed=seed)
    verdicts: list[Verdict] = []
    for file, own_seed in _campaigns(files, seed, repeat):
        torchs_own = {bucket for verdict in verdicts for bucket in verdict.torch}
        config = base.model_copy(update={"seed": own_seed})
        kept = directory / f"{file.stem}-{own_seed}"
        verdicts.append(_against(file, config, kept, early, torchs_own))
        if not as_json:
            console().print(_line(verdicts[-1]))
    if as_json:
        emit({"faults": [asdict(verdict) for verdict in verdicts], **_summary(verdicts)})
    else:
        console().print(_table(verdicts))
        console().print(" · ".join(f"{key} {value}" for key, value in _summary(verdicts).items()))
    good = all(verdict.buckets and not verdict.false for verdict in verdicts)
    raise typer.Exit(EXIT_OK if good else EXIT_CHANGED)


def _campaigns(files: Sequence[Path], seed: int, repeat: int) -> Iterator[tuple[Path, int]]:
    """Each file `repeat` times, each with a seed of its own: with one for all, what all campaigns
    draw would decide which faults are found."""
    for file in files:
        for number in range(repeat):
            yield file, derive(seed, "planted", file.stem, number) % 1_000_000


def _files(folder: Path, names: Sequence[str] | None) -> list[Path]:
    there = {file.stem: file for file in sorted(folder.absolute().glob("*.py"))}
    if not there:
        raise UserError(mismatch(folder, "a folder with faults", "no Python file"))
    for name in names or ():
        if name not in there:
            raise UserError(mismatch(name, f"a fault in {folder}, such as {min(there)}"))
    return [there[name] for name in names or there]


def _against(
    fault: Path, base: CampaignConfig, directory: Path, early: bool, torchs_own: set[str]
) -> Verdict:
    """Campaigns against one fault. Buckets that were `torchs_own` before do not end one early."""
    about = ast.get_docstring(ast.parse(fault.read_text())) or ""
    verdict = Verdict(fault.stem, about, base.seed)
    watch = _Watch(base.worker_count, early, torchs_own)
    while not verdict.buckets and (left := base.minutes - watch.elapsed_s / 60) > 0.2:
        watch.again()
        changes = {"preload": [fault], "minutes": left}
        with contextlib.suppress(_Enough):
            clock = _CpuClock(base.worker_count)
            config = base.model_copy(update=changes)
            ended = launch(config, directory, watch, clock=clock).ended
            if ended == "interrupted":
                raise KeyboardInterrupt
        _judge(verdict, base, directory)
    times = [watch.first[name] for name in verdict.buckets if name in watch.first]
    verdict.found_after = min(times, default=None)
    return verdict


def _judge(verdict: Verdict, base: CampaignConfig, directory: Path) -> None:
    """Fills in what the campaign in `directory` has found so far."""
    with Store(directory, create=False) as store:
        verdict.programs = store.totals().executed
        rows = _minimized(store)
    verdict.buckets, verdict.torch, verdict.false, verdict.lines = [], [], [], []
    if not rows:
        return
    clean = _keys_without_fault(base, [row for _, row in rows])
    for (bucket, row), keys in zip(rows, clean, strict=True):
        _attribute(verdict, bucket, row, keys)


def _minimized(store: Store) -> list[tuple[Bucket, FailureRow]]:
    """Each bucket with the failure that its first case was made of."""
    found: dict[str, FailureRow] = {}
    for row in store.failures():
        if row.bucket is not None and row.best is not None:
            found.setdefault(row.bucket, row)
    return [(b, found[b.id]) for b in store.buckets() if b.id in found]


def _keys_without_fault(
    base: CampaignConfig, rows: Sequence[FailureRow], runs: int = 3
) -> list[set[str]]:
    """The strong keys with which each minimized program fails in unbroken torch, of `runs` runs:
    what torch corrupts by itself does not show every time."""
    programs = [row.best for row in rows if row.best is not None]
    targets = {program_id(row.best): row.target for row in rows if row.best is not None}

    def on_its_target(program: Program) -> RunTask:
        return RunTask((program,), RunSettings(target=targets[program_id(program)]))

    with pool(base.python, [], target=rows[0].target) as opened:
        results = outcomes(opened, programs * runs, on_its_target)
    keys: list[set[str]] = [set() for _ in programs]
    for place, outcome in enumerate(results):
        at = place % len(programs)
        if outcome.failure and not numbers_are_right(rows[at], outcome.failure):
            found = signature(outcome.failure, programs[at])
            keys[at] |= {found.strong, *_of_numbers(found.aliases)}
    return keys


def numbers_are_right(row: FailureRow, failure: Failure) -> bool:
    """Whether the minimized program of `row` has wrong numbers, and `failure`, of the same program
    elsewhere, is of the layout alone, which is judged once the numbers are found right."""
    told = row.best_outcome.failure if row.best_outcome else None
    return (
        told is not None
        and told.kind in OF_NUMBERS
        and failure.kind is FailureKind.METADATA_MISMATCH
        and all(diff.what in LAYOUT for diff in failure.diffs)
    )


def is_torchs_own(bucket: Bucket, clean: set[str]) -> bool:
    """Whether unbroken torch fails so, with one of the keys `clean`: what lies in memory decides
    whether numbers are wrong or not finite. A failure that is on public record may have another key
    there."""
    known = bool(clean) and bucket.known_issue is not None
    return known or not clean.isdisjoint((bucket.strong, *_of_numbers(bucket.aliases)))


def _of_numbers(aliases: Sequence[str]) -> list[str]:
    """The key that wrong numbers of a kernel share with numbers that are not finite."""
    return [alias for alias in aliases if alias.startswith("numbers-")]


def _attribute(verdict: Verdict, bucket: Bucket, row: FailureRow, clean: set[str]) -> None:
    if is_torchs_own(bucket, clean):
        verdict.torch.append(bucket.id)
    elif not clean and row.best is not None and row.best_outcome and row.best_outcome.failure:
        verdict.buckets.append(bucket.id)
        verdict.lines.append(len(repro(row.best, row.best_outcome.failure).splitlines()))
    else:
        verdict.false.append(bucket.id)


def _summary(verdicts: Sequence[Verdict]) -> dict[str, str]:
    found = [verdict for verdict in verdicts if verdict.buckets]
    per_fault = mean(len(verdict.buckets) for verdict in found) if found else 0.0
    times = [verdict.found_after for verdict in found if verdict.found_after is not None]
    return {
        "found": f"{len(found)} of {len(verdicts)}",
        "median CPU s": f"{median(times):.0f}" if times else "-",
        "buckets per fault": f"{per_fault:.2f}",
        "false buckets": str(sum(len(verdict.false) for verdict in verdicts)),
    }


def _cells(verdict: Verdict) -> tuple[str, ...]:
    after = "-" if verdict.found_after is None else f"{verdict.found_after:.0f}"
    return (
        verdict.fault,
        str(verdict.seed),
        "yes" if verdict.buckets else "no",
        after,
        str(len(verdict.buckets)),
        str(len(verdict.false)),
        str(len(verdict.torch)),
        str(min(verdict.lines, default=0) or "-"),
        str(verdict.programs),
    )


def _line(verdict: Verdict) -> str:
    return "  ".join(_cells(verdict))


def _table(verdicts: Sequence[Verdict]) -> Table:
    table = Table(
        "fault",
        "seed",
        "found",
        "after CPU s",
        "buckets",
        "false",
        "torch's own",
        "lines",
        "programs",
    )
    for verdict in verdicts:
        table.add_row(*_cells(verdict))
    return table

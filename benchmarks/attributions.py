"""How often counterfactuals give a failure to the wrong cause.

    python benchmarks/attributions.py --out campaigns/attributions.jsonl [--count 200]
        [--minutes 60] [--seed 777] [--each 10]

Draws what `--config` draws, clear of nothing, and runs the programs that have all that some shipped
case without a stack needs on the CPU. A failure that counterfactuals give to a bucket is minimized
all the same, by a search that knows of no bucket, and the bucket of what is left is compared. Each
is a line of `--out`; what stands there is counted, and the shards before are not drawn again with
the same seed, so that a measurement may be made in parts. At most `--each` failures are minimized
for one bucket: some causes are met at every tenth program. Where a search did not come to its end,
or the failure did not show again, nothing is known; those are counted apart.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.corpus.counterfactual import holds
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.bucket_assignment import bucket_for
from attnfuzz.fuzz.campaign.bucket_index import BucketIndex
from attnfuzz.fuzz.campaign.config import CampaignConfig, load_config
from attnfuzz.fuzz.campaign.known_buckets import cause_of, load_known
from attnfuzz.fuzz.pool.opened import outcomes, pool
from attnfuzz.fuzz.pool.pool import Pool
from attnfuzz.fuzz.reduce.attribute import Attribute, suspected
from attnfuzz.fuzz.reduce.confirm import is_flaky
from attnfuzz.fuzz.reduce.evaluate import depends_on_memory
from attnfuzz.fuzz.reduce.judges import fails_wherever
from attnfuzz.fuzz.reduce.one_program import confirm, drive, minimize
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.strategies.shards import shard_programs

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "overnight.yaml"
TARGET = "cpu"
AT_ONCE = 8
"""Programs that are run before the next failure is looked into."""

Line = dict[str, Any]


def main(
    out: Annotated[Path, typer.Option("--out", help="Lines of JSON; appended to.")],
    config: Annotated[Path, typer.Option(help="What is drawn.")] = CONFIG,
    count: Annotated[int, typer.Option(min=1, help="Attributions that are checked.")] = 200,
    minutes: Annotated[float, typer.Option(min=0.1, help="Begins nothing after as many.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Of the programs.")] = 777,
    each: Annotated[int, typer.Option(min=1, help="At most as many of one bucket.")] = 10,
    workers: Annotated[int, typer.Option(min=1, help="Workers, one CPU each.")] = 2,
) -> None:
    base = load_config(config, seed=seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    until = time.monotonic() + minutes * 60
    with (
        Scratch.create() as scratch,
        Store(scratch.root / "none") as store,
        pool(sys.executable, [], workers, TARGET) as many,
    ):
        known = load_known(base)
        checks = Checks(many, BucketIndex(store, scratch.root, known), base, each, lines)
        for shard, program, outcome in checks.runs(until):
            if sum("is" in line for line in lines) >= count or time.monotonic() > until:
                break
            line = checks.checked(shard, program, outcome)
            if line is not None:
                lines.append(line)
                with out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
        environment = many.environment()
    console = Console(width=120)
    console.print(
        f"seed {seed}, {workers} workers, {os.cpu_count()} cores, {platform.platform()}, "
        f"torch {environment['torch']}"
    )
    tell(lines, console)


class Checks:
    """Draws programs, runs them on a pool, and checks what their failures are attributed to."""

    def __init__(
        self, many: Pool, index: BucketIndex, config: CampaignConfig, each: int, lines: list[Line]
    ) -> None:
        self._pool, self._index, self._config = many, index, config
        self._each, self._lines = each, lines

    def runs(self, until: float) -> Iterator[tuple[int, Program, Outcome]]:
        """Runs of programs that may have a known cause without a stack, each with its shard."""
        drawn = self._drawn()
        while time.monotonic() < until and (some := list(islice(drawn, AT_ONCE))):
            ended = outcomes(self._pool, [program for _, program in some])
            yield from ((*one, outcome) for one, outcome in zip(some, ended, strict=True))

    def _drawn(self) -> Iterator[tuple[int, Program]]:
        """Programs that have all that a bucket needs of which more are to be checked, from the last
        shard on that a line is of."""
        silent = [one for one in self._index.known.steered_clear_of(TARGET) if one.needs_trigger]
        mine = [line for line in self._lines if line["seed"] == self._config.seed]
        seen = {line["program"] for line in mine}
        shard = max((line["shard"] for line in mine), default=0)
        while True:
            enough = self._enough()
            wanted = [one for one in silent if cause_of(one) not in enough]
            if not wanted:
                return
            for program in shard_programs(
                self._config.seed, shard, self._config.shard_size, self._config.profiles
            ):
                has = features(program)
                new = program_id(program) not in seen
                if new and any(holds(one, has) for one in wanted):
                    yield shard, program
            shard += 1

    def _enough(self) -> set[str]:
        checked = Counter(line["given"] for line in self._lines)
        return {name for name, times in checked.items() if times >= self._each}

    def checked(self, shard: int, program: Program, outcome: Outcome) -> Line | None:
        """What a failure was attributed to, and what it is; None where it was to nothing, or to a
        bucket of which enough are checked."""
        failure = outcome.failure
        if failure is None or depends_on_memory(failure):
            return None
        there = self._index.suspects(failure, program, TARGET)
        judge = fails_wherever(program, outcome)
        attribution = Attribute(suspected(there, program), judge, TARGET)
        drive(self._pool, attribution)
        given = attribution.bucket
        if given is None or cause_of(given) in self._enough():
            return None
        line: Line = {"seed": self._config.seed, "shard": shard, "program": program_id(program)}
        return line | {"given": cause_of(given)} | self._is(program, outcome)

    def _is(self, program: Program, outcome: Outcome) -> Line:
        """Which bucket the program is of, once it is minimized."""
        finding = confirm(self._pool, program, outcome, TARGET, self._config.confirm_runs)
        if is_flaky(finding.failed, finding.runs):
            return {"unknown": "flaky"}
        budget = self._config.minimize
        until = time.monotonic() + budget.seconds
        stage = minimize(
            self._pool,
            finding,
            max_candidates=budget.max_candidates,
            stop=lambda: time.monotonic() > until,
        )
        if not stage.search.minimal:
            return {"unknown": "not minimized"}
        bucket, new = bucket_for(finding, self._index, None)
        told = {"is": "none that is known" if new else cause_of(bucket), "title": bucket.title}
        return told | {"candidates": stage.search.evaluated}


def tell(lines: list[Line], console: Console) -> None:
    """Prints how many attributions were checked, of each bucket, and which were wrong."""
    shown = Table("bucket", "given", "minimized", "wrong", "flaky", "not minimized")
    of: dict[str, list[Line]] = {}
    for line in lines:
        of.setdefault(line["given"], []).append(line)
    for name, mine in [*sorted(of.items()), ("all", lines)]:
        done = [line for line in mine if "is" in line]
        unknown = Counter(line.get("unknown") for line in mine)
        wrong = sum(line["is"] != line["given"] for line in done)
        numbers = (len(mine), len(done), wrong, unknown["flaky"], unknown["not minimized"])
        shown.add_row(name, *map(str, numbers))
    console.print(shown)
    for line in lines:
        if "is" in line and line["is"] != line["given"]:
            console.print(
                f"{line['program']}: {line['is']} ({line['title']}), not {line['given']}",
                highlight=False,
            )


if __name__ == "__main__":
    typer.run(main)

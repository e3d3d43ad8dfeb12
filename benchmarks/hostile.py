"""Corpora and campaigns that somebody has tampered with, against the commands that read them.

    PYTHONPATH=. python benchmarks/hostile.py --count 20000 --seed 1

Each mutation (`hostile_mutations.py`) is drawn from the seed, made in a fresh copy of a corpus and
a campaign, and given to a command in this process, which a hook watches (`hostile_watch.py`).
Sandboxes and Ray are stubs that render what would run; of the mutated corpora that `replay` takes,
one in `--real` is replayed once more by the command itself, in real sandboxes. Every command must
end with exit code 0, 1 or 2, in time, without a traceback, and print one sentence when it refuses;
nothing may be executed, nothing printed that steers a terminal, nothing of what lies outside be
read or written. Prints a table, and exits with 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from attnfuzz.corpus.files import UNFINISHED
from attnfuzz.corpus.replays import REPLAYS
from benchmarks.hostile_base import CASES, copy_of, make_base
from benchmarks.hostile_mutations import CANARY, FIELDS, OF_DATABASES, OF_FILES, SECRET, TEXTS
from benchmarks.hostile_watch import Watch, install, stub

DEADLINE_S = 20
BATCH = 250
KNOWN = "known issues"
KINDS = (*OF_FILES, *OF_DATABASES, KNOWN)
COMMANDS = ("replay", "triage", "show", "report", "render", "launch", "resume")
WRONG = ("defect", "hang", "executed", "printed", "leaked")


@dataclass(frozen=True)
class Found:
    """One command on one mutation: `ended` is "refused", "accepted" or one of `WRONG`, with what
    was seen."""

    number: int
    kind: str
    command: str
    ended: str
    told: str = ""


def mutate(work: Path, bucket: str, random: Random) -> tuple[str, Path]:
    """Tampers with what is in `work`, and gives the kind of it, and the file."""
    weights = [{"fields": 6, "database: cells": 4}.get(kind, 1) for kind in KINDS]
    (kind,) = random.choices(KINDS, weights)
    if kind in OF_DATABASES:
        file = work / "campaign" / "campaign.sqlite"
        OF_DATABASES[kind](file, random)
        return kind, file
    if kind == KNOWN:
        name = random.choice(("fields", "fields", "bytes", "encodings", "devices"))
        file = work / "known_issues.yaml"
        OF_FILES[name](file, random)
        return kind, file
    top = random.choice((work / "corpus", work / "corpus", work / "campaign" / "corpus"))
    there = [path for path in sorted((top / bucket).rglob("*")) if path.is_file()]
    names = FIELDS if kind == "fields" else TEXTS
    file = random.choice([path for path in there if str(path).endswith(names)])
    OF_FILES[kind](file, random)
    return kind, file


def commands(file: Path, work: Path, bucket: str, random: Random) -> list[tuple[str, list[str]]]:
    """The commands that read `file`, which was tampered with, or what is beside it."""
    corpus, campaign, config = str(work / "corpus"), str(work / "campaign"), str(work / "c.yaml")
    name, page = bucket.partition("-")[0], str(work / "out" / "page.html")
    form = random.choice(([], ["--json"], ["--markdown"]))
    as_json = random.choice(([], ["--json"]))
    launch = ("launch", ["launch", config, "--dir", str(work / "out"), *as_json])
    resume = ("resume", ["launch", str(work / "r.yaml"), "--dir", campaign, "--resume", *as_json])
    show = ("show", ["show", name[: random.choice((4, 8))], "--dir", corpus, *form])
    in_campaign = [
        ("triage", ["triage", campaign, *as_json]),
        ("show", ["show", name, "--dir", campaign, *form]),
        ("report", ["report", campaign, "--html", page]),
        resume,
    ]
    if file.name == "known_issues.yaml":
        return [launch, resume]
    if file.is_relative_to(campaign):
        return in_campaign
    allow = random.choice(([], ["--allow-preload"]))
    of_corpus = [
        ("replay", ["replay", corpus, *as_json, *allow]),
        ("triage", ["triage", corpus, *as_json]),
        show,
        ("report", ["report", corpus, "--html", page]),
        launch,
    ]
    if file.name == "program.yaml":
        of_corpus += [("render", ["render", str(file), *as_json])] * 2
    return of_corpus


WATCH = Watch()


class _Late(BaseException):
    """The deadline has passed."""


def _late(number: int, frame: object) -> None:
    raise _Late


def attempt(arguments: list[str], watch: Watch, work: Path) -> tuple[str, str]:
    """Runs a command in this process; how it ended, and what was seen."""
    from attnfuzz.fuzz.cli.app import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    watch.seen.clear()
    before = sys.stdout, sys.stderr, sys.stdin
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        sys.stdout, sys.stderr, sys.stdin = out, err, io.TextIOWrapper(io.BytesIO())
        watch.on = True
        code = main(arguments)
    except _Late:
        return "hang", f"after {DEADLINE_S} s"
    except BaseException as error:  # whatever comes out of `main` is a defect
        return "defect", f"{type(error).__name__}: {error}"
    finally:
        watch.on = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout, sys.stderr, sys.stdin = before
    for stream in (out, err):
        stream.flush()
    told, said = (one.buffer.getvalue().decode() for one in (out, err))
    if watch.seen or (work / CANARY).exists() or Path(CANARY).exists():
        return "executed", "; ".join(watch.seen) or "the canary is there"
    # The file that `render` is given by name may be a link, and what is refused in it is quoted.
    if SECRET in told + said and arguments[0] != "render":
        return "leaked", "the text of the file outside"
    bad = {one for one in told + said if not one.isprintable() and one not in "\n\t"}
    if bad and not (arguments[0] == "render" and bad <= {"\u00a0"}):
        return "printed", ascii("".join(sorted(bad)))
    return judged(code, told, said, "--json" in arguments)


def judged(code: int, told: str, said: str, as_json: bool) -> tuple[str, str]:
    """How a command ended that printed `told` and `said`."""
    if code == 2:
        lines = told.splitlines() if as_json else said.splitlines()
        line = lines[-1] if lines else ""
        whole = line.startswith('{"error": ' if as_json else "attnfuzz: ") and len(line) < 3000
        if whole and len(said.splitlines()) == (0 if as_json else 1):
            return "refused", line
        return "defect", f"not one sentence: {told[-300:]!r} {said[-300:]!r}"
    if code in (0, 1) and "Traceback" not in said:
        return "accepted", ""
    return "defect", f"exit code {code}: {said[-1500:]}{told[-300:] if as_json else ''}"


def warm(base: Path) -> None:
    """Imports and makes once, before processes are forked off, what commands need."""
    with tempfile.TemporaryDirectory(prefix="hostile-", dir=base.parent) as folder:
        work = Path(folder)
        copy_of(base, work, CASES[0])
        os.chdir(work)
        (program,) = (work / "corpus").glob("*/*/program.yaml")
        random = Random(0)
        every = commands(program, work, CASES[0], random)
        every += commands(work / "campaign" / "x", work, CASES[0], random)
        for name, arguments in every:
            ended = attempt(arguments, WATCH, work)
            assert ended == ("accepted", ""), (name, ended)
        os.chdir(base.parent)


def batch(base: Path, seed: int, numbers: range, real: int) -> Iterator[Found]:
    """What the mutations with these numbers do, one after the other."""
    watch = WATCH
    install(watch)
    for number in numbers:
        random = Random(f"{seed}:{number}")
        bucket = random.choice(CASES)
        with tempfile.TemporaryDirectory(prefix="hostile-", dir=base.parent) as folder:
            work = Path(folder)
            copy_of(base, work, bucket)
            kind, file = mutate(work, bucket, random)
            os.chdir(work)
            noted = tuple(f"corpus/{start}{REPLAYS}" for start in ("", UNFINISHED))
            watch.writable = tuple(f"{work / name}" for name in ("campaign", "out", *noted)) + (
                os.path.join(tempfile.gettempdir(), "hostile-scratch-"),
                os.path.join(tempfile.gettempdir(), "attnfuzz-read-"),
            )
            outside = _listing(work / "outside")
            name, arguments = random.choice(commands(file, work, bucket, random))
            rendered = watch.rendered
            ended, told = attempt(arguments, watch, work)
            if _listing(work / "outside") != outside:
                ended, told = "executed", "what lies outside has changed"
            yield Found(number, kind, name, ended, told)
            taken = ended == "accepted" and name == "replay" and watch.rendered > rendered
            if taken and real and random.randrange(real) == 0:
                yield Found(number, kind, "real", *really(arguments, work))
            os.chdir(base.parent)
            _open_up(work)


def really(arguments: list[str], work: Path) -> tuple[str, str]:
    """The command itself, in a process of its own, with sandboxes."""
    root = str(Path(__file__).resolve().parents[1])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "attnfuzz", *arguments], cwd=work, capture_output=True,
            text=True, timeout=300, env=os.environ | {"PYTHONPATH": root}, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hang", "after 300 s"
    if list(work.rglob(CANARY)):
        return "executed", "the canary is there"
    return judged(done.returncode, done.stdout, done.stderr, "--json" in arguments)


def _listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_size) for path in folder.rglob("*"))


def _open_up(work: Path) -> None:
    """So that the folder can be taken away."""
    with contextlib.suppress(OSError):
        for path in work.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)


def run(base: Path, count: int, seed: int, real: int) -> Iterator[Found]:
    """All mutations, in processes that are ended when they hang."""
    done = 0
    while done < count:
        numbers = range(done, min(count, done + BATCH))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                with open(writing, "w") as out:
                    for found in batch(base, seed, numbers, real):
                        print(json.dumps(vars(found)), file=out, flush=True)
                    print(json.dumps(None), file=out, flush=True)
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.close(writing)
        last = done - 1
        with open(reading) as lines:
            while True:
                ready = select.select([lines], [], [], 400)[0]
                line = lines.readline() if ready else ""
                if not line:  # it hangs where no signal reaches it, or has died
                    os.kill(child, signal.SIGKILL)
                    ended = "hang" if not ready else "defect"
                    yield Found(last + 1, "?", "?", ended, "the process was lost")
                    done = last + 2
                    break
                told = json.loads(line)
                if told is None:
                    done = numbers.stop
                    break
                found = Found(**told)
                last = max(last, found.number)
                yield found
        os.waitpid(child, 0)


def table_of(found: Counter[tuple[str, str, str]]) -> Table:
    """Rows: kinds of mutations; columns: what each command did, then what went wrong."""
    table = Table(title="refused in one sentence / accepted")
    table.add_column("tampered with")
    for name in (*COMMANDS, "real", *WRONG):
        table.add_column(name, justify="right")
    for kind in (*KINDS, "all"):
        kinds = KINDS if kind == "all" else (kind,)

        def count(name: str, ended: str, kinds: tuple[str, ...] = kinds) -> int:
            names = (*COMMANDS, "real", "?") if name == "any" else (name,)
            return sum(found[one, each, ended] for one in (*kinds, "?") for each in names)

        cells = [f"{count(n, 'refused')} / {count(n, 'accepted')}" for n in (*COMMANDS, "real")]
        table.add_row(kind, *cells, *(str(count("any", ended)) for ended in WRONG))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", type=int, default=20, help="of how many one; 0: none")
    options = parser.parse_args()
    began, counted, wrong = time.monotonic(), Counter[tuple[str, str, str]](), 0
    memory = Path("/dev/shm")
    top = tempfile.mkdtemp(prefix="hostile-", dir=memory if memory.is_dir() else None)
    try:
        base = make_base(Path(top) / "base")
        stub(WATCH)
        signal.signal(signal.SIGALRM, _late)
        warm(base)
        for found in run(base, options.count, options.seed, options.real):
            counted[found.kind, found.command, found.ended] += 1
            if found.ended in WRONG:
                wrong += 1
                print(f"{found.number} {found.kind} {found.command} {found.ended}: {found.told}")
                sys.stdout.flush()
    finally:
        shutil.rmtree(top, ignore_errors=True)
    Console(width=200).print(table_of(counted))
    runs = sum(counted.values())
    print(
        f"{options.count} mutations from seed {options.seed}, {runs} commands, {wrong} wrong, one "
        f"replay in {options.real} real, in {time.monotonic() - began:.0f} s on "
        f"{platform.platform()}, Python {platform.python_version()}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

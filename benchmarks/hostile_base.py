"""The corpus and the campaign that mutations begin with: some of the shipped cases, whole."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from attnfuzz.actors.shard import Kept
from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import (
    FAILURE,
    Case,
    Preload,
    find_cases,
    read_bucket,
    read_case,
    write_bucket,
    write_case,
)
from attnfuzz.corpus.confirmation import Confirmation, add_confirmation
from attnfuzz.corpus.known_issues import SHIPPED as KNOWN_ISSUES
from attnfuzz.corpus.store.store import State, Store
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.codec import dump_yaml, load_yaml_safely, program_id
from attnfuzz.generators.model.outcome import Outcome
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.validity import problems
from benchmarks.hostile_mutations import SECRET

SHIPPED = Path(__file__).resolve().parents[1] / "corpus" / "cases"
PRELOAD = "import torch\n"
CONFIG = (
    "minutes: 0.0005\nworkers: 1\nseed: 3\nvariants: false\nshipped: false\n"
    "known_issues: known_issues.yaml\n"
)
VERSIONS = {"torch": "2.13.0", "python": "3.11"}
"""Of the toolchain that campaigns have and commands find."""

VARIANTS = {"layer=eager": "passes", "kernel=flex": "fails"}
CONFIRMED = Confirmation(target="cuda", card="NVIDIA A10", torch="2.13.0", verdict="confirmed")


def _cases() -> tuple[str, ...]:
    """Buckets of the shipped cases, but for those that take long to read."""
    found = find_cases([SHIPPED])
    short = (one.parent.name for one in found if (one / FAILURE).stat().st_size < 6000)
    return tuple(dict.fromkeys(short))


CASES = _cases()


@dataclass
class _Report:
    """A shard's report."""

    index: int = 0
    target: str = "cpu"
    hardware: str | None = None
    failures: tuple[tuple[Program, Outcome], ...] = ()
    executed: int = 10
    counts: Mapping[str, int] = field(default_factory=lambda: {"passed": 9, "failed": 1})
    by_key: Mapping[str, int] = field(default_factory=lambda: {"a key": 3})
    rejections: Mapping[str, int] = field(default_factory=lambda: {"a reason": 1})
    features: Mapping[str, int] = field(default_factory=lambda: {"a feature": 5})
    cpu_s: float = 1.5
    known_cpu_s: float = 0.0
    wall_s: float = 2.0
    harness_cpu_s: float = 0.25
    predicted_cpu_s: float = 0.0
    stopped: tuple[Program, ...] = ()
    kept: tuple[Kept, ...] = ()
    parents: tuple[Program, ...] = ()


def make_base(base: Path) -> Path:
    """A corpus and a campaign for each bucket, below `base`."""
    issues = load_yaml_safely(KNOWN_ISSUES.read_text())[::8]
    for name in CASES:
        bucket = read_bucket(SHIPPED / name)
        case = read_case(find_cases([SHIPPED / name])[0])
        digest = hashlib.sha256(PRELOAD.encode()).hexdigest()
        preload = Preload(name="fault.py", sha256=digest, text=PRELOAD)
        # On the CPU: the others are not to be had everywhere, and what they share is read alike.
        environment = {**case.environment, "target": "cpu"}
        program = _with_options(case.program)
        case = replace(
            case, program=program, preload=(preload,), environment=environment, variants=VARIANTS
        )
        for corpus in (base / name / "corpus", base / name / "campaign" / "corpus"):
            corpus.mkdir(parents=True)
            write_bucket(corpus, bucket)
            add_confirmation(write_case(corpus, bucket, case), CONFIRMED)
        _campaign(base / name / "campaign", case, read_bucket(base / name / "corpus" / name))
        for config, more in (("c.yaml", "corpus: [corpus]\n"), ("r.yaml", "")):
            (base / name / config).write_text(CONFIG + more)
        (base / name / "known_issues.yaml").write_text(dump_yaml(issues))
        (base / name / "outside").mkdir()
        (base / name / "outside" / "secret").write_text(f"{SECRET}\n" * 3)
    return base


def _with_options(program: Program) -> Program:
    """The program with options wherever it may have some: they are an author's own words."""
    changed = program
    if program.compile is not None and not program.compile.options:
        options: dict[str, bool | int | str] = {"max_autotune": False, "cpp.simdlen": 0}
        changed = replace(changed, compile=replace(program.compile, options=options))
    if isinstance(program.kernel, Flex):
        kernel = replace(program.kernel, kernel_options={"BLOCK_M": 32})
        changed = replace(changed, kernel=kernel)
    return program if problems(changed) else changed


def _campaign(folder: Path, case: Case, bucket: Bucket) -> None:
    outcome = Outcome(status="failed", failure=case.failure)
    others = [replace(case.program, seed=case.program.seed + 1 + n) for n in range(4)]
    with Store(folder) as store:
        config = {"seed": 3, "shard_size": 10, "targets": {"cpu": 1.0}, "profiles": {"mixed": 1.0}}
        store.begin(3, config, VERSIONS)
        programs = [case.program, *others]
        store.record_shard(_Report(failures=tuple((program, outcome) for program in programs)))
        name = program_id(case.program)
        store.update_failure(
            name, State.DONE, runs=5, failures=5, bucket=bucket, best=(case.program, outcome)
        )
        store.save_variants(name, VARIANTS)
        states = (State.FLAKY, State.CONFIRMED, State.MINIMIZING, State.NEW)
        for program, state in zip(others, states, strict=True):
            store.update_failure(program_id(program), state, runs=5, failures=4)


def copy_of(base: Path, work: Path, bucket: str) -> None:
    """A fresh copy of what there is for `bucket`, in the empty folder `work`."""
    shutil.copytree(base / bucket, work, dirs_exist_ok=True)

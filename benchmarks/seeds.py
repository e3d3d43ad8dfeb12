"""The incidents this project exists for: does a campaign find each by itself, and how soon?

    PYTHONPATH=. python benchmarks/seeds.py [--seeds 5] [--cpu-minutes 15] [--dir DIR] [NAME …]

`--first 4 --seeds 2` are the seeds 4 and 5.

Each incident gets campaigns from one general configuration (benchmarks/incidents/campaign.yaml;
that of cards that are not there is virtual.yaml, those of other toolchains are systems.yaml and
kernels.yaml) with different seeds. An incident that today's
torch no longer has, or has on other hardware, is kept alive by a preload file beside the
configuration, which says what it does; a kernel of its own is called by `function` programs. A
campaign ends when a bucket of the right kind, whose title is the incident's, is minimized; printed
are the CPU seconds of every process of the campaign (Ray's own too) until a failure of that kind
and title was confirmed, and until its bucket was minimized, programs run, the buckets of that kind
and title (1 is right), and lines of the script. Found is what is minimized.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console
from rich.table import Table

from attnfuzz.corpus.bucket import Bucket
from attnfuzz.corpus.case import read_bucket
from attnfuzz.corpus.signature import signature
from attnfuzz.corpus.store.rows import FailureRow
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig, load_config
from attnfuzz.fuzz.campaign.launch import launch
from attnfuzz.fuzz.report.findings import bucket_folders
from attnfuzz.fuzz.report.live import BucketView, Snapshot
from attnfuzz.generators.strategies.swarm import UserFunction

HERE = Path(__file__).resolve().parent / "incidents"
NPU = HERE.parents[1] / "configs" / "torch_npu_stand_in.py"


ONE_THING = (("compile_error", "graph_break"), ("no_valid_choices", "out_of_memory"))
"""Kinds that one cause may show as: by `fullgraph`; by whether tiles are measured."""


@dataclass(frozen=True)
class Incident:
    """`kind` and a pattern of the bucket's title say what is to be found; `files` are preload
    files, none for torch as it is; `function` is the kernel that they define, `profile` one that
    the campaign needs besides the general ones; `system` is the kernel that the minimized program
    has to have. `trained`: it has to have a backward pass, and to pass on some other target of the
    campaign."""

    name: str
    kind: str
    title: str
    files: tuple[Path, ...] = ()
    function: UserFunction | None = None
    profile: str | None = None
    config: str = "campaign.yaml"
    system: str | None = None
    trained: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """`kind`, and what else it may show as."""
        return next((kinds for kinds in ONE_THING if self.kind in kinds), (self.kind,))

    def is_in(self, bucket: BucketView | Bucket) -> bool:
        """What dynamo cannot trace has one bucket, of the kind that it was first seen as."""
        return self._is_named(bucket.kind, bucket.title)

    def is_confirmed_in(self, row: FailureRow) -> bool:
        """Whether the failure is of that kind and title, and has failed again when it was run."""
        failure = row.outcome.failure
        if (
            failure is None
            or not row.failures
            or self.system not in (None, row.program.kernel.kind)
        ):
            return False
        return self._is_named(failure.kind, signature(failure, row.program).title)

    def _is_named(self, kind: str, title: str) -> bool:
        return kind in self.kinds and bool(re.search(self.title, title))

    def holds(self, bucket: BucketView | Bucket, store: Store) -> bool:
        """Whether a minimized bucket of that kind and title is the incident's."""
        rows = store.failures(bucket=bucket.id)
        programs = [(row.program_id, row.best) for row in rows if row.best is not None]
        if self.system is not None:
            return any(program.kernel.kind == self.system for _, program in programs)
        return not self.trained or any(
            program.training is not None
            and any(
                name.startswith("target=") and what == "passes"
                for name, what in store.variants(met).items()
            )
            for met, program in programs
        )


def emulated(name: str) -> tuple[Path, ...]:
    """The preload file of that name beside the configuration."""
    return (HERE / f"{name}.py",)


def kernel(target: str) -> UserFunction:
    return UserFunction(target=target, dtypes=("float32", "bfloat16"), cross=True)


INCIDENTS = (
    Incident("1-flex-compile", "compile_error", "call_id", emulated("id_of_nested_function")),
    Incident("1-flex-graph-break", "graph_break", "call_id", emulated("id_of_nested_function")),
    Incident(
        "2-opaque-builtin", "graph_break", "Unsupported method call", emulated("opaque_builtin"),
        kernel("opaque_kernel:attention"),
    ),
    Incident(
        "2-fake-strides", "metadata_mismatch", "expected size", emulated("fake_with_other_strides"),
        kernel("custom_kernel:attention"),
    ),
    Incident(
        "2-recompile-limit", "recompile_limit", "", emulated("compiled_for_each_length"),
        kernel("counting_kernel:attention"),
    ),
    Incident("3-no-valid-choices", "no_valid_choices", "", emulated("no_valid_choices")),
    Incident(
        "3-shared-memory", "no_valid_choices", "backward.* shared memory",
        config="virtual.yaml", trained=True,
    ),
    Incident("4-type-mixing", "type_mixing", "mixed torch.Tensor and DTensor"),
    Incident(
        "4-npu-type-mixing", "type_mixing", "npu_fusion_attention.* mixed torch.Tensor and DTensor",
        (NPU, *emulated("npu_mask_left_plain")), profile="npu_fusion_attention",
    ),
    Incident("5-hang", "hang", "barrier", emulated("ranks_part_ways")),
)  # fmt: skip


def in_torchtitan(name: str, kind: str, title: str, *files: str) -> Incident:
    """An incident in TorchTitan as it is installed, or with preload files of those names."""
    paths = tuple(path for file in files for path in emulated(file))
    return Incident(name, kind, title, paths, config="systems.yaml", system="torchtitan")


IN_SYSTEMS = (
    in_torchtitan(
        "1-torchtitan", "compile_error", "call_id",
        "torchtitan_mask_in_forward", "id_of_nested_function",
    ),
    Incident(
        "2-flash-attn", "runtime_error", "tensors_saved_with_vc_check|expected Tensor",
        config="kernels.yaml", system="flash_attn",
    ),
    Incident(
        "3-torchtune", "no_valid_choices", "torchtune attention's backward .* shared memory",
        config="systems.yaml", system="torchtune",
    ),
    in_torchtitan("4-torchtitan", "type_mixing", "mixed torch.Tensor and DTensor"),
    in_torchtitan("5-torchtitan", "hang", "barrier", "ranks_part_ways"),
)  # fmt: skip
"""Where it happened: in the systems' own code."""


class Ended(Exception):
    """The incident's bucket is done, or the CPU time is spent."""


def tree_cpu_s() -> float:
    """CPU seconds of this process and all below it, those included that ended and were waited for.
    Unlike time by the clock it does not grow with what else the machine does."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


@dataclass
class Watch:
    incident: Incident
    directory: Path
    limit_s: float
    """CPU seconds."""
    before_s: float = field(default_factory=tree_cpu_s)
    cpu_s: float = 0.0
    confirmed_s: float | None = None
    found: bool = False

    def __call__(self, snapshot: Snapshot) -> None:
        self.cpu_s = max(self.cpu_s, tree_cpu_s() - self.before_s)
        if self.confirmed_s is None:
            with Store(self.directory, create=False) as store:
                if any(map(self.incident.is_confirmed_in, store.failures())):
                    self.confirmed_s = self.cpu_s
        done = [bucket for bucket in snapshot.buckets if bucket.state in ("done", "variants")]
        alike = [bucket for bucket in done if self.incident.is_in(bucket)]
        if alike:
            with Store(self.directory, create=False) as store:
                self.found = any(self.incident.holds(bucket, store) for bucket in alike)
        if self.found or self.cpu_s > self.limit_s:
            raise Ended


def known_to(incident: Incident, corpora: Sequence[Path]) -> list[Path]:
    """The shipped buckets of `corpora` that are not the incident's: what is known costs nothing."""
    return [
        folder
        for corpus in corpora
        for folder in bucket_folders(corpus)
        if not incident.is_in(read_bucket(folder))
    ]


def campaign(
    incident: Incident, base: CampaignConfig, directory: Path, limit_s: float
) -> tuple[str, ...]:
    """One campaign of at most `limit_s` CPU seconds; the cells of its row."""
    changes: dict[str, object] = {"shipped": False, "corpus": known_to(incident, base.corpus)}
    if incident.files:
        changes["preload"] = list(incident.files)
    profile = incident.profile
    if incident.function is not None:
        changes["functions"] = (incident.function,)
        profile = "function"
    if profile is not None:
        changes["profiles"] = dict(base.profiles) | {profile: 6.0}
    watch = Watch(incident, directory, limit_s)
    try:
        if launch(base.model_copy(update=changes), directory, watch).ended == "interrupted":
            raise KeyboardInterrupt
    except Ended:
        pass
    with Store(directory, create=False) as store:
        executed = store.totals().executed
        alike = [
            bucket
            for bucket in store.buckets()
            if incident.is_in(bucket) and incident.holds(bucket, store)
        ]
    lines = [
        len(script.read_text().splitlines())
        for bucket in alike
        for script in (directory / "corpus" / bucket.folder).glob("*/repro.py")
    ]
    return (
        incident.name,
        str(base.seed),
        "-" if watch.confirmed_s is None else f"{watch.confirmed_s:.0f}",
        f"{watch.cpu_s:.0f}" if watch.found else "not found",
        str(executed),
        str(len(alike)),
        str(min(lines, default=0) or "-"),
    )


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Default: every incident.")] = None,
    seeds: Annotated[int, typer.Option(help="Campaigns per incident.")] = 5,
    first: Annotated[int, typer.Option(help="Seed of an incident's first campaign.")] = 1,
    cpu_minutes: Annotated[float, typer.Option(help="CPU-minutes per campaign.")] = 15,
    workers: Annotated[int, typer.Option(help="Workers, one CPU each.")] = 2,
    directory: Annotated[Path, typer.Option("--dir")] = Path("campaigns/seeds"),
) -> None:
    console = Console(width=100)
    header = ("incident", "seed", "confirmed", "minimized", "programs", "buckets", "lines")
    table = Table(*header)
    missed = 0
    for incident in (i for i in (*INCIDENTS, *IN_SYSTEMS) if not names or i.name in names):
        for seed in range(first, first + seeds):
            minutes = 2 * cpu_minutes  # by the clock: CPU time is what ends it
            base = load_config(HERE / incident.config, seed=seed, minutes=minutes, workers=workers)
            where = directory / f"{incident.name}-{seed}"
            row = campaign(incident, base, where, 60 * cpu_minutes)
            missed += row[3] == "not found"
            table.add_row(*row)
            console.print("  ".join(row))
    console.print(table)
    console.print(f"{table.row_count - missed} of {table.row_count} found")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    typer.run(main)

"""What each part of the search is worth: campaigns with it, and without it.

    python benchmarks/ablations.py --dir campaigns/ablations [--minutes 10] [--seeds 3]
        [--config configs/overnight.yaml] [--without steering --without budgets]

For each seed in turn it runs one campaign as the configuration says, and one with each of the keys
in `PARTS` turned the other way, on the same workers, one after the other. Then it prints of each
variant, all seeds together: distinct causes (the buckets of minimized programs that are not known,
one cause met with two seeds counted once), programs, where the CPU time went, the longest time
without a new program, and the longest wait of a cheap finding. Which causes only some variants met
is listed below. A campaign that is there already is read, not run again.
"""

from __future__ import annotations

import os
import platform
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from attnfuzz.corpus.store.rows import KEPT, KNOWN_CAUSES, NEW_PROGRAMS
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig, load_config
from attnfuzz.fuzz.campaign.launch import launch
from attnfuzz.fuzz.campaign.waits import BEHIND, FIRST_RUN, KNOWN, NO_PROGRAM

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "overnight.yaml"
PARTS = ("steering", "counterfactuals", "budgets", "yields", "feedback")
AS_IS = "as configured"


@dataclass
class Variant:
    """What the campaigns of one variant found and spent, `of` so many seeds. `causes` are titles by
    strong key and trigger; `each` how many each campaign found."""

    name: str
    causes: dict[tuple[str, frozenset[str]], str] = field(default_factory=dict)
    each: list[int] = field(default_factory=list)
    programs: int = 0
    behaviours: set[str] = field(default_factory=set)
    cpu: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)

    def add(self, directory: Path) -> None:
        """Adds what the campaign in `directory` came to."""
        with Store(directory, create=False) as store:
            totals = store.totals()
            minimized = {row.bucket for row in store.failures() if row.state in KEPT}
            found = {
                (one.strong, one.trigger): one.title
                for one in store.buckets()
                if one.id in minimized and one.known_issue is None
            }
        self.causes |= found
        self.each.append(len(found))
        self.programs += totals.executed
        self.behaviours |= totals.features.keys()
        self.cpu.update(totals.cpu)
        for name, seconds in totals.longest.items():
            self.longest[name] = max(self.longest.get(name, 0.0), seconds)


def ran(config: CampaignConfig, directory: Path, console: Console) -> None:
    """Runs the campaign, unless it was."""
    if (directory / "done").exists():
        return
    console.print(f"{directory}")
    ended = launch(config, directory).ended
    if ended == "interrupted":
        raise KeyboardInterrupt
    (directory / "done").write_text(f"{ended}\n")


def main(
    directory: Annotated[Path, typer.Option("--dir", help="Where the campaigns are kept.")],
    config: Annotated[Path, typer.Option(help="What is configured otherwise.")] = CONFIG,
    minutes: Annotated[float, typer.Option(help="Of each campaign.")] = 10,
    seeds: Annotated[int, typer.Option(min=1, help="How many, from `--seed` on.")] = 3,
    seed: Annotated[int, typer.Option(help="The first one.")] = 101,
    workers: Annotated[int, typer.Option(help="Workers, one CPU each.")] = 2,
    without: Annotated[
        list[str] | None, typer.Option(help="One of the parts; by default each in turn.")
    ] = None,
) -> None:
    console = Console(width=120)
    unknown = sorted(set(without or ()) - set(PARTS))
    if unknown:
        raise typer.BadParameter(f"expected some of {', '.join(PARTS)}, got {unknown[0]}")
    base = load_config(config, minutes=minutes, workers=workers)
    changes: dict[str, dict[str, bool]] = {AS_IS: {}}
    for part in without or PARTS:
        on = getattr(base, part)
        changes[f"{'no' if on else 'with'} {part}"] = {part: not on}
    variants = {name: Variant(name) for name in changes}
    for number in range(seed, seed + seeds):
        for name, change in changes.items():
            kept = directory / f"{name.replace(' ', '-')}-{number}"
            kept.mkdir(parents=True, exist_ok=True)
            ran(base.model_copy(update={"seed": number, **change}), kept, console)
            variants[name].add(kept)
    console.print(
        f"{seeds} seeds from {seed} on, {minutes:g} minutes each, {workers} workers; "
        f"{os.cpu_count()} cores, {platform.platform()}"
    )
    console.print(table(list(variants.values())))
    tell_differences(list(variants.values()), console)


def table(variants: Sequence[Variant]) -> Table:
    purposes = [NEW_PROGRAMS, KNOWN_CAUSES]
    purposes += sorted({name for one in variants for name in one.cpu} - set(purposes))
    shown = Table("", *(one.name for one in variants))
    shown.add_row("distinct causes", *(str(len(one.causes)) for one in variants))
    shown.add_row("of each seed", *(", ".join(map(str, one.each)) for one in variants))
    shown.add_row(
        "causes per CPU-hour",
        *(f"{len(one.causes) / (one.cpu.total() / 3600):.1f}" for one in variants),
    )
    shown.add_row("programs", *(f"{one.programs:,}" for one in variants))
    shown.add_row("compiler's behaviours", *(f"{len(one.behaviours):,}" for one in variants))
    shown.add_row("CPU s", *(f"{one.cpu.total():,.0f}" for one in variants))
    for name in purposes:
        shares = (one.cpu[name] / max(one.cpu.total(), 1e-9) for one in variants)
        shown.add_row(f"  {name}", *(f"{share:.0%}" for share in shares))
    for name in (NO_PROGRAM, FIRST_RUN, BEHIND, KNOWN):
        shown.add_row(f"longest {name}", *(f"{one.longest.get(name, 0):.0f} s" for one in variants))
    return shown


def tell_differences(variants: Sequence[Variant], console: Console) -> None:
    """The causes that not every variant met, and which did."""
    met: dict[tuple[str, frozenset[str]], list[str]] = defaultdict(list)
    titles: dict[tuple[str, frozenset[str]], str] = {}
    for one in variants:
        for cause, title in one.causes.items():
            met[cause].append(one.name)
            titles[cause] = title
    for cause in sorted(met, key=lambda one: (titles[one], one[0], sorted(one[1]))):
        if len(met[cause]) < len(variants):
            console.print(f"{titles[cause]}: {', '.join(met[cause])}", highlight=False)


if __name__ == "__main__":
    typer.run(main)

"""Three real nights: `python benchmarks/nights.py [--shards 9] [--seed 11]`.

Campaigns on torch itself, into which faults are planted (`PLANTS`, a preload file); what stands for
another torch is the same one with other faults. Night one finds A, B and C; A is reported, B is no
bug, C is merged into A. Night two finds D, and A again, and B is gone. In night three A is gone
too, and B is back. Before each night `replay --record` runs the corpus, as the docs advise, since
campaigns themselves try again only what was not seen for a week. All else is done by commands, too.
Prints what each night said, and the CPU seconds of all processes; ends with exit code 1 where a
night said something else than the story.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig, MinimizeConfig
from attnfuzz.fuzz.campaign.controller import Campaign
from attnfuzz.fuzz.pool.opened import pool_in

PLANTS = '''"""Plants the faults that a file names: SDPA raises for some programs."""

from pathlib import Path

import torch

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
FAULTS = Path({faults!r}).read_text().split()
original = torch.library.get_kernel(f"aten::{{OPERATOR}}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    meets = {{
        "scaled": scale is not None,
        "uneven": query.size(2) != key.size(2),
        "causal": is_causal,
        "masked": attn_mask is not None,
    }}
    for fault in FAULTS:
        if meets[fault]:
            raise RuntimeError(f"planted: {{fault}}")
    return original.call_boxed(
        keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)
'''
URL = "https://example.org/issues/7"


class Nights:
    """A folder with a corpus, and campaigns that know it."""

    def __init__(self, top: Path, seed: int, shards: int) -> None:
        self.top, self.corpus, self.shards = top, top / "found", shards
        self.corpus.mkdir()
        self.faults, self.preload = top / "faults.txt", top / "plants.py"
        self.preload.write_text(PLANTS.format(faults=str(self.faults)))
        self.config = CampaignConfig(
            seed=seed, profiles={"eager": 1}, preload=[self.preload], corpus=[self.corpus],
            steering=False, confirm_runs=2, repro_runs=1, variants=False,
            minimize=MinimizeConfig(max_candidates=60),
        )  # fmt: skip

    def night(self, name: str, *faults: str) -> dict[str, Any]:
        """A campaign with these faults, which is then adopted; gives what `triage` says of it."""
        self.faults.write_text(" ".join(faults))
        config, directory = self.config, self.top / name
        directory.mkdir()
        if any(self.corpus.iterdir()):
            self.run("replay", str(self.corpus), "--record", "--preload", str(self.preload))
        with (
            Scratch.create() as scratch,
            Store(directory) as store,
            pool_in(scratch.root, config.python, config.preload) as pool,
        ):
            store.begin(config.seed, config.model_dump(mode="json"), pool.environment())
            campaign = Campaign(
                config, directory, pool, store, scratch=scratch.root, max_shards=self.shards
            )
            campaign.run()
        told: dict[str, Any] = json.loads(self.run("triage", str(directory), "--json"))
        print(f"night {name}, with {', '.join(faults)}: {told['executed']} programs")
        print(self.run("triage", str(directory)).partition("since last night")[2])
        self.run("adopt", str(directory), "--into", str(self.corpus))
        return told

    def decide(self, *command: str) -> None:
        """One of the commands that decide."""
        self.run(*command, "--corpus", str(self.corpus))

    def run(self, *command: str) -> str:
        """What a command prints."""
        started = [sys.executable, "-m", "attnfuzz", *command]
        done = subprocess.run(started, capture_output=True, text=True)
        if done.returncode > 1:  # of a replay, 1 says that something changed
            sys.exit(done.stderr)
        return done.stdout


def story(nights: Nights) -> list[str]:
    """Plays it, and gives what was otherwise than told."""
    wrong: list[str] = []

    def expect(what: str, got: object, wanted: object) -> None:
        if got != wanted:
            wrong.append(f"{what}: expected {wanted}, got {got}")

    def called(told: dict[str, Any]) -> dict[str, str]:
        titles = {row["id"]: row["title"].partition("planted: ")[2] for row in told["buckets"]}
        return {title.split()[0]: name for name, title in titles.items() if title}

    one = nights.night("one", "scaled", "causal", "uneven")
    found = called(one)
    expect("night one finds", sorted(found), ["causal", "scaled", "uneven"])
    if wrong:
        return wrong
    a, b, c = found["scaled"], found["uneven"], found["causal"]
    nights.decide("decide", a, "reported", "--url", URL, "--by", "Ada")
    nights.decide("decide", b, "not-a-bug", "--why", "documented")
    nights.decide("merge", a, c)
    two = nights.night("two", "scaled", "causal", "masked")
    expect("new in night two", two["since"]["new"], [called(two).get("masked")])
    again = [name for name in two["since"]["again"] if name in found.values()]
    expect("again in night two", again, [a])
    expect("stopped in night two", list(two["since"]["stopped"]), [b])
    three = nights.night("three", "uneven", "masked")
    expect("new in night three", three["since"]["new"], [])
    expect("stopped in night three", list(three["since"]["stopped"]), [a])
    expect("came back in night three", list(three["since"]["came_back"]), [b])
    return wrong


def main() -> None:
    """Plays the story and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--shards", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attnfuzz-nights-") as folder:
        wrong = story(Nights(Path(folder), options.seed, options.shards))
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"{sum(one.ru_utime + one.ru_stime for one in spent):.0f} CPU s")
    print("\n".join(wrong) or "as the story has it")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

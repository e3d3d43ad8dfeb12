"""Resuming: what a campaign must share with the one that is there already, to go on with it.

How far that one came is in its database: `campaign.controller` draws the shards that it lacks, and
`campaign.findings_queue` takes up the findings with which something is left to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attnfuzz.corpus.store.kept import kept_programs
from attnfuzz.corpus.store.outliers import outliers
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.interruptions import CampaignError
from attnfuzz.fuzz.environment import toolchain_differences
from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.codec import program_id
from attnfuzz.generators.reading.complaints import mismatch
from attnfuzz.generators.reading.safe_yaml import short


def check_same(config: CampaignConfig, store: Store, directory: Path) -> None:
    """Raises CampaignError when the campaign that is there draws other programs than `config`."""
    there = store.campaign()
    if there is None:
        return
    now = config.model_dump(mode="json")
    for key in ("seed", "shard_size", "profiles", "functions", "targets"):
        if key in there.config and there.config[key] != now[key]:
            begun, wanted = short(there.config[key]), short(now[key])
            raise CampaignError(
                f"{directory}: {key}: the campaign there was begun with {begun}, "
                f"not {wanted}; its programs would change."
            )
    for row in store.pending():
        if row.target not in config.targets:
            where = f"{store.path}: failures: row {row.number}: target"
            allowed = f"one of {', '.join(config.targets)}"
            raise CampaignError(f"{mismatch(where, allowed, short(row.target))}.")


def check_functions(config: CampaignConfig, store: Store, directory: Path) -> None:
    """Raises CampaignError where what is left to run calls a function that `config` does not name
    (findings, programs that were stopped, or were kept): what lies in a directory is data, and
    nothing in it is imported."""
    ours = {function.target for function in config.functions}
    there = [one for row in store.pending() for one in (row.program, row.best) if one is not None]
    there += [program for program, _ in store.read(outliers)]
    there += [kept.program for _, kept in store.read(kept_programs)]
    for program in there:
        target = plugin_of(program).imports(program.kernel)
        if target is not None and target not in ours:
            where = f"{directory}: program {program_id(program)}: kernel.target"
            allowed = "one of the configuration's functions"
            raise CampaignError(f"{mismatch(where, allowed, target)}.")


def check_toolchain(
    now: Mapping[str, str], config: CampaignConfig, store: Store, directory: Path
) -> None:
    """Raises CampaignError when the campaign that is there ran in another toolchain than that whose
    environment is `now`: its failures would be reported of a torch that never showed them."""
    there = store.campaign()
    differ = toolchain_differences(there.versions, now) if there else {}
    if differ:
        key, (then, here) = next(iter(differ.items()))
        raise CampaignError(
            f"{directory}: {key}: the campaign there ran with {then}, and {config.python} has "
            f"{here}; resume it with that toolchain, or begin another with another --dir."
        )

"""Who holds a campaign's directory, on any disk and from any machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.corpus.store import lease
from attnfuzz.corpus.store.lease import LEASE, Held, Lease, age_s, holder_of, is_dead, this_process
from attnfuzz.corpus.store.schema import is_on_network
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.claim import claim
from attnfuzz.fuzz.campaign.interruptions import CampaignError

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lease, "SETTLES_S", 0.0)
    yield


def left_by(directory: Path, *, age: float = 0.0, **changes: Any) -> None:
    """A lease that somebody took and has not renewed for `age` seconds."""
    holder = replace(this_process(), **changes)
    (directory / LEASE).write_text(json.dumps(asdict(holder)))
    now = time.time() - age
    os.utime(directory / LEASE, (now, now))


def test_it_is_held_and_given_back(tmp_path: Path) -> None:
    with closing(Lease(tmp_path)) as mine:
        assert holder_of(tmp_path) is not None and mine.lost_to is None
        with pytest.raises(Held, match=f"process {os.getpid()}"):
            Lease(tmp_path)
    assert os.listdir(tmp_path) == []


def test_one_that_is_renewed_elsewhere_is_held(tmp_path: Path) -> None:
    left_by(tmp_path, host="elsewhere", age=20)
    with pytest.raises(Held, match="elsewhere, process"):
        Lease(tmp_path)
    assert os.listdir(tmp_path) == [LEASE]


def test_one_that_nobody_renews_is_taken(tmp_path: Path) -> None:
    left_by(tmp_path, host="elsewhere", age=31)
    with closing(Lease(tmp_path)):
        assert holder_of(tmp_path) != "elsewhere"


@pytest.mark.parametrize(
    ("changes", "dead"),
    [
        ({}, False),
        ({"boot": "another"}, True),
        ({"pid": 2**22 + 1}, True),
        ({"pid": 2**22 + 1, "pids": "pid:[1]"}, False),  # a container's: its pids are not ours
        ({"pid": 2**22 + 1, "host": "elsewhere"}, False),
    ],
)
def test_who_has_ended_on_this_machine_is_known_at_once(
    tmp_path: Path, changes: dict[str, Any], dead: bool
) -> None:
    left_by(tmp_path, **changes)
    there = holder_of(tmp_path)
    assert there is not None and is_dead(there) is dead


def test_its_age_is_told_by_the_disk(tmp_path: Path) -> None:
    assert age_s(tmp_path) is None
    left_by(tmp_path, age=100)
    age = age_s(tmp_path)
    assert age is not None and 99 < age < 200


def test_what_is_no_lease_ages_too(tmp_path: Path) -> None:
    (tmp_path / LEASE).write_text("{")
    with pytest.raises(Held, match="somebody"):
        Lease(tmp_path)
    os.utime(tmp_path / LEASE, (1, 1))
    Lease(tmp_path).close()


def test_who_has_slept_writes_nothing_any_more(tmp_path: Path) -> None:
    """As after SIGSTOP, or a partition from the disk: another has taken the campaign over."""
    with claim(tmp_path) as mine, Store(tmp_path) as store:
        store.guard = mine.check
        store.begin(1, {}, {})
        mine.begun = True
        assert mine.lease is not None
        left_by(tmp_path, host="elsewhere")
        mine.lease._renew()
        with pytest.raises(
            CampaignError, match="elsewhere, process .* has taken the campaign over"
        ):
            store.count("sum", {"shards": 1})
        assert store.totals().shards == 0
    there = holder_of(tmp_path)
    assert there is not None and there.host == "elsewhere"


LATER = """
import sys, time
from pathlib import Path
from typing import Any
from attnfuzz.fuzz.campaign.claim import claim
with claim(Path(sys.argv[1])) as held:
    held.begun = True
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def test_a_second_controller_waits_for_the_first(tmp_path: Path) -> None:
    first = subprocess.Popen(
        [sys.executable, "-c", LATER, str(tmp_path), "2"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    refused = pytest.raises(CampaignError, match=f"running there: .*, process {first.pid}\\.")
    with refused, claim(tmp_path):
        pytest.fail("claimed twice")
    with claim(tmp_path, wait_s=60):
        assert first.wait() == 0


def test_one_killed_with_sigkill_is_no_obstacle(tmp_path: Path) -> None:
    first = subprocess.Popen(
        [sys.executable, "-c", LATER, str(tmp_path), "60"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    first.kill()
    first.wait()
    assert (tmp_path / LEASE).exists()
    with claim(tmp_path):
        pass


@pytest.mark.parametrize(
    ("kind", "on_network"), [("ext4", False), ("nfs4", True), ("fuse.gcsfuse", True)]
)
def test_a_disk_of_several_machines_has_no_shared_index(
    tmp_path: Path, kind: str, on_network: bool
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nhost:/x {tmp_path}/shared {kind} rw 0 0\n")
    assert is_on_network(tmp_path / "shared" / "campaign.sqlite", mounts) is on_network
    assert not is_on_network(tmp_path / "other", mounts)

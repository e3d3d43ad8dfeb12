"""Programs beside each other: CPUs that are a worker's own, and what may be written to the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.actors.runs import ReproTask
from attnfuzz.actors.sandbox import disk
from attnfuzz.actors.sandbox.cpus import HeldCpus, confine_to, enough, here
from attnfuzz.actors.scripts import run_repro
from attnfuzz.fuzz.campaign.config import ConfigError, config_from_data
from attnfuzz.fuzz.campaign.workers import check_workers, groups_of
from attnfuzz.fuzz.pool.groups import fixed_cpus, room
from attnfuzz.fuzz.reduce.evaluate import reproduces
from attnfuzz.generators.model.outcome import Failure, FailureKind, Phase, Raised

NOBODYS = (90_001, 90_002, 90_003)
"""Numbers of CPUs that no machine has, so that no campaign holds them."""

MIB = 1 << 20


@pytest.fixture
def asleep() -> Iterator[int]:
    """A process that only sleeps."""
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


def test_a_cpu_is_held_by_one_at_a_time() -> None:
    with closing(HeldCpus(2, NOBODYS)) as first, closing(HeldCpus(1, NOBODYS)) as second:
        assert first.numbers == NOBODYS[:2] and second.numbers == NOBODYS[2:]
        assert HeldCpus(1, NOBODYS).numbers == ()
    with closing(HeldCpus(2, NOBODYS)) as again:
        assert HeldCpus(2, NOBODYS).numbers == ()  # one is left: it holds none
        assert again.numbers == NOBODYS[:2]


def test_a_cpu_is_held_against_other_processes_and_free_once_they_are_killed() -> None:
    holds = (
        "import sys, time\n"
        "from attnfuzz.actors.sandbox.cpus import HeldCpus\n"
        f"held = HeldCpus(1, {NOBODYS[:1]})\n"
        "print(len(held.numbers), flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", holds]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "1\n"
        assert HeldCpus(1, NOBODYS[:1]).numbers == ()
        other.send_signal(signal.SIGKILL)
    with closing(HeldCpus(1, NOBODYS[:1])) as held:
        assert held.numbers == NOBODYS[:1]


def test_a_program_is_confined_where_each_of_its_processes_has_a_cpu(asleep: int) -> None:
    assert enough((4, 5), 1) == enough((4, 5), 2) == (4, 5)
    assert enough((4, 5), 3) == enough((), 1) == ()
    one = min(here())
    confine_to((one,), asleep)
    assert os.sched_getaffinity(asleep) == {one}
    confine_to((), asleep)
    confine_to(NOBODYS, asleep)  # none that is there: it stays as it is
    assert os.sched_getaffinity(asleep) == {one}


def test_what_is_on_the_disk_is_counted_once_and_without_a_name_too(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    whole = tmp_path / "inner" / "file"
    whole.write_bytes(bytes(2 * MIB))
    os.link(whole, tmp_path / "link")
    (tmp_path / "dangling").symlink_to("nowhere")
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(64 * MIB)
    with (tmp_path / "removed").open("wb") as file:
        file.write(bytes(3 * MIB))
        file.flush()
        (tmp_path / "removed").unlink()
        named, all_of_it = disk.used(tmp_path), disk.used(tmp_path, [os.getpid()])
    assert named.bytes >> 20 == 2 and all_of_it.bytes >> 20 == 5
    assert str(all_of_it).splitlines()[1].startswith("3 MiB a removed file")


FILLS = """\
import os, time
for number in range(100):
    with open(f"part-{number}", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 64 << 20)
    time.sleep(0.1)
"""


def test_a_script_that_fills_its_folder_is_ended(tmp_path: Path) -> None:
    task = ReproTask(FILLS, sys.executable, str(tmp_path), runs=1, disk_mb=256)
    (ran,) = run_repro(task)
    assert ran.status == -signal.SIGKILL
    assert "wrote more than 256 MiB to its folder" in ran.stderr and "part-0" in ran.stderr
    assert list(tmp_path.iterdir()) == []
    raised = Raised(type="DiskQuotaExceeded", message="wrote more than 256 MiB")
    failure = Failure(kind=FailureKind.RUNTIME_ERROR, phase=Phase.EAGER, raised=raised)
    assert reproduces(ran, failure)
    assert not reproduces(replace(ran, stderr=""), failure)


def test_a_group_asks_for_the_cpus_and_devices_of_its_programs() -> None:
    config = config_from_data(
        {
            "profiles": {"integrated": 1},
            "targets": ["cpu", "npu"],
            "workers": {"cpu": {"cpus": 4}, "npu": {"count": 1, "devices": 2, "cpus": 2}},
            "ray_address": "auto",
        },
        "test",
    )
    cpu, npu = groups_of(config)
    assert cpu.options()["num_cpus"] == 4 and cpu.own_cpus == 4
    assert npu.options()["resources"] == {"NPU": 2} and npu.own_cpus == 0
    assert room((cpu, npu), {"CPU": 16.0, "NPU": 2.0}) == [3, 0]
    assert fixed_cpus((cpu, npu)) == 2
    off = config.model_copy(update={"pin_cpus": False})
    assert groups_of(off)[0].own_cpus == 0


@pytest.mark.parametrize(
    ("group", "address", "expected"),
    [
        ({"nodes": 2, "count": 1}, None, "cpu.nodes: expected 1, as there is no cluster"),
        ({"nodes": 2}, "auto", "cpu.count: expected a number, as each has several nodes, got auto"),
    ],
)
def test_workers_on_several_nodes_need_a_cluster_and_a_count(
    group: dict[str, object], address: str | None, expected: str
) -> None:
    config = config_from_data({"workers": {"cpu": group}, "ray_address": address}, "test")
    with pytest.raises(ConfigError, match=expected):
        check_workers(config, "test")


def test_a_worker_on_two_nodes_is_another_hardware() -> None:
    workers = {"cpu": [1, {"nodes": 2, "count": 1, "resources": {"big": 1}}]}
    config = config_from_data({"workers": workers, "ray_address": "auto"}, "test")
    check_workers(config, "test")
    assert [one.hardware({}, {}) for one in groups_of(config)] == ["", "big, 2 nodes"]


def test_several_nodes_are_for_targets_whose_programs_have_ranks() -> None:
    of_cuda = {"targets": ["cuda"], "workers": {"cuda": {"nodes": 2, "count": 1}}}
    config = config_from_data(of_cuda | {"ray_address": "auto"}, "test")
    expected = "cuda.nodes: expected 1, as cuda runs no ranks as processes, got 2"
    with pytest.raises(ConfigError, match=expected):
        check_workers(config, "test")


def test_a_device_is_shared_or_one_of_several() -> None:
    workers = {"npu": {"devices": 2, "per_device": 4}}
    of_npu = {"targets": ["npu"], "profiles": {"integrated": 1}, "workers": workers}
    config = config_from_data(of_npu, "test")
    expected = r"test: workers.npu.devices: expected 1, as 4 workers share a device, got 2\."
    with pytest.raises(ConfigError, match=expected):
        check_workers(config, "test")

"""The manifests for KubeRay and `ray up`, against the schemas that those publish."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from attnfuzz.fuzz.campaign.config import load_config
from attnfuzz.fuzz.cli.app import app
from attnfuzz.fuzz.pool.groups import WorkerGroup, room, without_spread

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = sorted((ROOT / "deploy" / "kuberay").glob("*.yaml"))
SCHEMAS = json.loads((ROOT / "tests" / "golden" / "kuberay.json").read_text())["v1"]


def complaints(manifest: dict[str, Any]) -> list[str]:
    return [
        f"{'.'.join(map(str, error.path))}: {error.message}"
        for error in Draft202012Validator(SCHEMAS[manifest["kind"]]).iter_errors(manifest)
    ]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_is_what_kuberay_reads(path: Path) -> None:
    assert complaints(yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("spec", "entrypont"), "x"),
        (("spec", "backoffLimit"), "three"),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0, "replica"), 1),
        (("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "container"), []),
    ],
)
def test_a_wrong_manifest_is_seen(keys: tuple[Any, ...], value: object) -> None:
    manifest = yaml.safe_load((ROOT / "deploy" / "kuberay" / "rayjob.yaml").read_text())
    at = manifest
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value
    assert complaints(manifest) != []


def test_all_of_them_run_the_same_cluster() -> None:
    by_kind = {
        one["kind"]: one["spec"] for one in map(yaml.safe_load, map(Path.read_text, MANIFESTS))
    }
    cluster = by_kind["RayCluster"]
    assert by_kind["RayJob"]["rayClusterSpec"] == cluster
    assert by_kind["RayCronJob"]["jobTemplate"]["rayClusterSpec"] == cluster


def test_the_job_runs_a_command_that_is_one() -> None:
    job = yaml.safe_load((ROOT / "deploy" / "kuberay" / "rayjob.yaml").read_text())
    command, *arguments = shlex.split(job["spec"]["entrypoint"])
    assert command == "attnfuzz"
    told = CliRunner().invoke(app, [arguments[0], "--help"], env={"COLUMNS": "200"}).output
    assert all(one in told for one in arguments if one.startswith("--"))
    assert load_config(ROOT / "configs" / f"{arguments[1]}.yaml").ray_address == "auto"


def test_ray_up_takes_the_cluster() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((ROOT / "deploy" / "ray-cluster.yaml").read_text())
    validate_config(prepare_config(config))


CPU, GPU, NPU = (WorkerGroup(targets=(name,)) for name in ("cpu", "cuda", "npu"))
H100 = WorkerGroup(targets=("cuda",), accelerator_type="H100", per_device=4)


@pytest.mark.parametrize(
    ("node", "fits"),
    [
        ({"CPU": 8.0}, [8, 0, 0, 0]),
        ({"CPU": 8.0, "GPU": 2.0}, [6, 2, 0, 0]),
        ({"CPU": 8.0, "GPU": 1.0, "accelerator_type:H100": 1.0}, [4, 0, 0, 4]),
        ({"CPU": 2.0, "NPU": 8.0}, [0, 0, 2, 0]),
        ({"CPU": 0.0, "GPU": 1.0}, [0, 0, 0, 0]),
        ({}, [0, 0, 0, 0]),
    ],
)
def test_a_node_has_room_for_as_many_workers_as_it_has_devices(
    node: dict[str, float], fits: list[int]
) -> None:
    assert room((CPU, GPU, NPU, H100), node) == fits


def test_room_is_left_for_those_that_are_on_several_nodes() -> None:
    spread = WorkerGroup(targets=("cpu",), count=1, nodes=2, cpus=3)
    nodes = {name: {"CPU": cpus} for name, cpus in (("a", 2.0), ("b", 4.0), ("c", 5.0))}
    left = without_spread((CPU, spread), nodes)
    assert left == {"a": {"CPU": 2.0}, "b": {"CPU": 1.0}, "c": {"CPU": 2.0}}
    del nodes["c"]  # now it fits nowhere, and the others have all
    assert without_spread((CPU, spread), nodes) == nodes


def test_a_group_with_a_count_takes_no_open_room() -> None:
    three = WorkerGroup(targets=("cpu",), count=3)
    assert room((three, GPU), {"CPU": 4.0, "GPU": 1.0}) == [0, 1]


def test_a_device_keeps_a_cpu_for_the_worker_that_ray_will_place_there() -> None:
    one = WorkerGroup(targets=("npu",), count=1)
    assert room((CPU, one), {"CPU": 4.0, "NPU": 8.0}) == [3, 0]

"""Bad input through the real command: one sentence that names it, exit code 2, nothing written."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attnfuzz.fuzz.campaign.interruptions import ROOM_BYTES
from benchmarks.campaign_state import damage, inspect
from tests.support.mounts import mounted

ROOT = Path(__file__).resolve().parent.parent
SMOKE = ROOT / "configs" / "smoke.yaml"
PLANTED = ROOT / "benchmarks" / "planted" / "graph_break_gqa.py"

Result = subprocess.CompletedProcess[str]
Command = Callable[..., Result]


def assert_refused(result: Result, *words: object) -> None:
    """One line on stderr, with these words in it, nothing on stdout, and exit code 2."""
    assert result.returncode == 2, (result.returncode, result.stderr[-3000:])
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("attnfuzz: ")
    for word in words:
        assert str(word) in line


CONFIGS = {
    "an unknown key": ("sead: 1", ["sead", "unknown key", "seed"]),
    "an unknown key inside": ("limits: {memory: 512}", ["limits.memory", "memory_mb"]),
    "a wrong type": ("minutes: soon", ["minutes", "expected a number", "'soon'"]),
    "a list for a mapping": ("profiles: [eager]", ["profiles", "a mapping"]),
    "no mapping at all": ("- 1", ["mapping"]),
    "an empty file": ("", ["mapping"]),
    "a missing preload file": ("preload: [gone.py]", ["preload[0]", "gone.py", "Python file"]),
    "a missing toolchain": ("toolchain: gone/python", ["toolchain", "gone/python"]),
    "no time": ("minutes: 0", ["minutes", "> 0.0", "got 0"]),
    "time below nothing": ("minutes: -5", ["minutes", "> 0.0", "got -5"]),
    "endless time": ("minutes: .inf", ["finite number"]),
    "years": ("minutes: 1e9", ["minutes", "<= 43200.0"]),
    "no workers": ("workers: 0", ["workers", ">= 1"]),
    "no memory": ("limits: {memory_mb: 1}", ["limits.memory_mb", "1024"]),
    "nothing may be minimized": ("minimize: {max_candidates: 0}", ["minimize.max_candidates"]),
    "no weight": ("profiles: {eager: 0}", ["profiles", "above 0"]),
    "an unknown profile": ("profiles: {eagre: 1}", ["profiles.eagre", "eager"]),
    "an unknown target": ("targets: [tpu]", ["targets.tpu", "one of cpu, cuda"]),
    "a target that cannot run": (
        "targets: [npu]\nprofiles: {inductor-sdpa: 1}\n",
        ["targets.npu", "torch_npu is not installed"],
    ),
    "a target without programs": ("targets: [npu]\n", ["profiles", "whose programs npu can take"]),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_refused(attnfuzz: Command, tmp_path: Path, name: str) -> None:
    text, words = CONFIGS[name]
    config = tmp_path / "campaign.yaml"
    config.write_text(text)
    assert_refused(attnfuzz("launch", config, "--dir", tmp_path / "out"), config, *words)
    assert not (tmp_path / "out").exists()


def test_a_missing_config_is_refused(attnfuzz: Command, tmp_path: Path) -> None:
    result = attnfuzz("launch", tmp_path / "gone.yaml", "--dir", tmp_path / "out")
    assert_refused(result, tmp_path / "gone.yaml", "No such file")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "option, value", [("--minutes", "-1"), ("--workers", "0"), ("--seed", "x")]
)
def test_an_impossible_option_is_refused(
    attnfuzz: Command, tmp_path: Path, option: str, value: str
) -> None:
    result = attnfuzz("launch", SMOKE, "--dir", tmp_path / "out", option, value)
    assert_refused(result, option.strip("-"))
    assert not (tmp_path / "out").exists()


def bomb() -> str:
    """A billion laughs: a few lines that would become 9**9 strings."""
    lines = ["mask: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    return "\n".join(lines)


PROGRAMS: dict[str, tuple[str | bytes, list[str]]] = {
    "an unknown mask": ("mask: {kind: casual}", ["mask", "'casual'", "causal"]),
    "an unknown key": ("shape: {lenght: 4}", ["shape.lenght"]),
    "a negative length": ("shape: {q_len: -3}", ["shape.q_len", ">= 0", "-3"]),
    "a length of text": ("shape: {q_len: many}", ["shape.q_len", "integer", "many"]),
    "no program for its shape": ("shape: {q_heads: 3, kv_heads: 2}", ["heads"]),
    "a bomb of aliases": (bomb(), ["aliases"]),
    "a deep nest": ("mask: " + "{kind: not, mask: " * 3000 + "}" * 3000, ["nesting"]),
    "10 MB of noise": (random.Random(0).randbytes(10_000_000), ["1000000 bytes"]),
    "10 MB of text": ("seed: " + "1" * 10_000_000, ["1000000 bytes"]),
    "a little noise": (random.Random(0).randbytes(999), ["UTF-8"]),
    "nothing": ("", ["mapping"]),
    "a key twice": ("seed: 1\nseed: 2", ["'seed'", "twice"]),
    "a Python object": (
        '!!python/object/apply:os.system ["touch owned"]',
        ["tags", "python/object"],
    ),
    "a Python name": ("seed: !!python/name:os.system", ["tags", "python/name"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_refused(attnfuzz: Command, tmp_path: Path, name: str) -> None:
    content, words = PROGRAMS[name]
    program = tmp_path / "program.yaml"
    program.write_bytes(content.encode() if isinstance(content, str) else content)
    for command in ("render", "run"):
        assert_refused(attnfuzz(command, program, cwd=tmp_path), program, *words)
    assert os.listdir(tmp_path) == ["program.yaml"]


def test_a_program_on_standard_input_is_refused_alike(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "attnfuzz", "render", "-"],
        input=random.Random(0).randbytes(10_000_000),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
    )
    assert result.returncode == 2
    assert result.stderr.decode().splitlines() == [
        "attnfuzz: <stdin>: expected at most 1000000 bytes, got more"
    ]


def test_a_missing_program_is_refused(attnfuzz: Command, tmp_path: Path) -> None:
    assert_refused(attnfuzz("run", tmp_path / "gone.yaml"), "gone.yaml", "No such file")


def test_with_json_the_sentence_is_on_stdout(attnfuzz: Command, tmp_path: Path) -> None:
    program = tmp_path / "program.yaml"
    program.write_text("shape: {q_len: -3}")
    result = attnfuzz("render", program, "--json")
    assert result.returncode == 2
    assert result.stderr == ""
    assert result.stdout.startswith('{"error": "') and "shape.q_len" in result.stdout


def test_a_directory_below_a_file_is_refused(attnfuzz: Command, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert_refused(attnfuzz("launch", SMOKE, "--dir", file / "out"), file, "ot a directory")
    assert_refused(attnfuzz("launch", SMOKE, "--dir", file), file)
    assert file.read_text() == "mine"


def test_a_target_that_the_toolchain_cannot_serve_is_refused(
    attnfuzz: Command, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("targets: [virtual-sm90]\nprofiles: {inductor-flex: 1}\n")
    result = attnfuzz("launch", config, "--dir", tmp_path / "out")
    assert_refused(result, "targets.virtual-sm90", "triton is not installed")
    assert not (tmp_path / "out").exists()


def test_a_database_that_is_none_is_refused(attnfuzz: Command, tmp_path: Path) -> None:
    database = tmp_path / "campaign.sqlite"
    database.write_text("not a database" * 1000)
    result = attnfuzz("launch", SMOKE, "--dir", tmp_path, "--resume")
    assert_refused(result, database, "expected a campaign's database")
    assert database.read_text() == "not a database" * 1000


def test_a_campaign_is_not_begun_over_another(attnfuzz: Command, tmp_path: Path) -> None:
    (tmp_path / "campaign.sqlite").touch()
    assert_refused(attnfuzz("launch", SMOKE, "--dir", tmp_path), tmp_path, "--resume")
    assert os.listdir(tmp_path) == ["campaign.sqlite"]


def test_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    result = mounted(
        'mount -t tmpfs -o ro none "$1" && exec "$2" -m attnfuzz launch "$3" --dir "$1/out"',
        *(tmp_path, sys.executable, SMOKE),
    )
    assert_refused(result, tmp_path / "out", "ead-only")


FULL = """
mount -t tmpfs -o size=$2 none "$1" || exit 99
"$3" -m attnfuzz launch "$4" --dir "$1/campaign" >"$5/stdout" 2>"$5/stderr"
echo $? >"$5/code"
cp -a "$1/campaign" "$5/full"
mount -o remount,size=256m "$1" || exit 98
"$3" -m attnfuzz launch "$4" --dir "$1/campaign" --resume --minutes 0.1 >&2
echo $? >"$5/resumed-code"
cp -a "$1/campaign" "$5/resumed"
"""
"""A campaign on a disk of size $2 at $1 that fills up; then again with room. Copies go to $5."""

SHARD_SIZE = 5


@pytest.mark.slow
def test_a_full_disk_ends_a_campaign_and_damages_nothing(tmp_path: Path) -> None:
    disk, seen, config = tmp_path / "disk", tmp_path / "seen", tmp_path / "config.yaml"
    disk.mkdir()
    seen.mkdir()
    config.write_text(
        f"seed: 3\nminutes: 0.8\nworkers: 1\nshard_size: {SHARD_SIZE}\nprofiles: {{eager: 1}}\n"
        f"preload: [{PLANTED}]\nconfirm_runs: 2\nminimize: {{max_candidates: 30, seconds: 10}}\n"
        "variants: false\n"
    )
    result = mounted(FULL, disk, f"{(ROOM_BYTES >> 10) + 250}k", sys.executable, config, seen)
    assert result.returncode == 0, result.stderr[-3000:]

    assert (seen / "code").read_text().strip() == "2", (seen / "stderr").read_text()[-3000:]
    (line,) = (seen / "stderr").read_text().splitlines()
    assert line.startswith(f"attnfuzz: {disk / 'campaign'}")
    assert "full" in line or "No space left" in line
    assert "what was saved before is whole" in line
    full = inspect(seen / "full")
    assert full.shards, "the disk was full before anything was run"
    assert damage(full, SHARD_SIZE) == []

    assert (seen / "resumed-code").read_text().strip() == "0", result.stderr[-3000:]
    resumed = inspect(seen / "resumed")
    assert damage(resumed, SHARD_SIZE) == []
    assert resumed.shards.keys() >= full.shards.keys()
    assert resumed.failures.keys() >= full.failures.keys()
    assert list((seen / "resumed").rglob(".unfinished-*")) == []

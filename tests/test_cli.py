"""The command line's answers: bad input in one sentence, exit codes, JSON, deterministic bytes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attnfuzz.fuzz.errors import EXIT_BAD_INPUT, UserError, os_sentence, sentence

Run = Callable[..., "subprocess.CompletedProcess[str]"]

CONFIG = "seed: 1\nminutes: 1\nworkers: 1\n"
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n"
ROOT = Path(__file__).resolve().parent.parent


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2 and one sentence on stderr, which has all of `words`."""
    assert result.returncode == EXIT_BAD_INPUT, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("attnfuzz: "), result.stderr
    for word in words:
        assert word in lines[0]


BAD_CONFIGS = {
    "unknown key": ("minuets: 5\n", ("minuets",)),
    "wrong type": ("minutes: soon\n", ("minutes", "number")),
    "no budget": ("minutes: 0\n", ("minutes", "expected a number > 0.0, got 0")),
    "negative budget": ("minutes: -3\n", ("minutes", "-3")),
    "no workers": ("workers: 0\n", ("workers",)),
    "no weights": ("profiles: {mixed: 0}\n", ("profiles", "above 0")),
    "missing preload": ("preload: [nowhere.py]\n", ("preload", "nowhere.py")),
    "a list": ("- 1\n", ("mapping",)),
    "bomb": (BOMB, ("aliases",)),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_bad_configuration_is_one_sentence(name: str, scratch: Path, attnfuzz: Run) -> None:
    text, words = BAD_CONFIGS[name]
    path = scratch / "campaign.yaml"
    path.write_text(text)
    refused(attnfuzz("launch", path, "--dir", scratch / "out"), "campaign.yaml", *words)
    assert not (scratch / "out").exists()


def test_a_missing_configuration_is_one_sentence(scratch: Path, attnfuzz: Run) -> None:
    refused(attnfuzz("launch", scratch / "none.yaml"), "none.yaml")


@pytest.mark.parametrize("below", ["/proc/nothing", "{file}/below"])
def test_an_unwritable_directory_is_one_sentence(below: str, scratch: Path, attnfuzz: Run) -> None:
    config, file = scratch / "campaign.yaml", scratch / "file"
    config.write_text(CONFIG)
    file.write_text("")
    where = below.format(file=file)
    refused(attnfuzz("launch", config, "--dir", where), where)


def test_a_campaign_is_not_begun_over_another(scratch: Path, attnfuzz: Run) -> None:
    config = scratch / "campaign.yaml"
    config.write_text(CONFIG)
    (scratch / "campaign.sqlite").write_text("")
    refused(attnfuzz("launch", config, "--dir", scratch), str(scratch), "--resume")


BAD_PROGRAMS = {
    "unknown mask": (b"mask: {kind: casual}\n", ("mask", "casual", "causal")),
    "negative length": (b"shape: {q_len: -3}\n", ("shape.q_len", "-3")),
    "unknown key": (b"kernal: {kind: sdpa}\n", ("kernal",)),
    "bomb": (BOMB.encode(), ("aliases",)),
    "noise": (bytes(range(256)) * 40_000, ("bytes",)),
    "noise that is text": (b"\x01\x02 {[" * 2_000_000, ("bytes",)),
    "python object": (b"!!python/object/apply:os.system ['true']\n", ("tags",)),
    "python name": (b"kernel: !!python/name:os.system\n", ("tags",)),
    "impossible": (b"shape: {q_heads: 3, kv_heads: 2}\n", ("shape",)),
}


@pytest.mark.parametrize(
    ("name", "command"),
    [*((name, "render") for name in BAD_PROGRAMS), ("noise", "run"), ("unknown mask", "minimize")],
)
def test_a_bad_program_is_one_sentence(
    name: str, command: str, scratch: Path, attnfuzz: Run
) -> None:
    data, words = BAD_PROGRAMS[name]
    path = scratch / "program.yaml"
    path.write_bytes(data)
    refused(attnfuzz(command, path), "program.yaml", *words)


def test_errors_as_json(scratch: Path, attnfuzz: Run) -> None:
    result = attnfuzz("render", scratch / "none.yaml", "--json")
    assert result.returncode == EXIT_BAD_INPUT
    assert "none.yaml" in json.loads(result.stdout)["error"]
    assert result.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "p.yaml", "--toolchain", "/nowhere/python"),
        ("run", "p.yaml", "--preload", "/nowhere/fault.py"),
        ("generate", "--profile", "unheard-of"),
        ("generate", "--seed", "x"),
        ("generate", "--count", "-1"),
        ("replay", "/nowhere"),
        ("triage", "/nowhere"),
        ("show", "abc", "--dir", "/nowhere"),
        ("frobnicate",),
        ("targets", "--toolchain", "/bin/ls"),
        ("minimize", "p.yaml", "--workers", "99999999999"),
        ("bench", "planted", "--workers", "0"),
        ("bench", "planted", "--cpu-minutes", "-1"),
        ("generate", "--profile", "function", "--function", "nowhere"),
        ("generate", "--function", "a.b:c"),
    ],
)
def test_bad_arguments_are_one_sentence(
    arguments: tuple[str, ...], scratch: Path, attnfuzz: Run
) -> None:
    (scratch / "p.yaml").write_text("seed: 1\n")
    refused(attnfuzz(*arguments, cwd=scratch))


SMOKE = ROOT / "configs" / "smoke.yaml"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--minutes", "-5"), "--minutes: expected a number > 0.0, got -5.0"),
        (("--seed", "-1"), "--seed: expected an integer >= 0, got -1"),
        (("--workers", "5000"), "--workers: expected an integer <= 1024, got 5000"),
        (("--toolchain", "/bin/ls"), "--toolchain: expected a Python interpreter with torch"),
        (("--toolchain", "/nowhere"), "got /nowhere, which is not a file"),
    ],
)
def test_an_option_is_blamed_and_not_the_file(
    arguments: tuple[str, ...], says: str, scratch: Path, attnfuzz: Run
) -> None:
    result = attnfuzz("launch", SMOKE, "--dir", scratch / "out", *arguments)
    refused(result, says)
    assert "smoke.yaml" not in result.stderr


@pytest.mark.parametrize("command", ["run", "minimize", "targets"])
def test_what_is_no_interpreter_is_refused_alike(
    command: str, scratch: Path, attnfuzz: Run
) -> None:
    (scratch / "p.yaml").write_text("seed: 1\n")
    program = () if command == "targets" else (scratch / "p.yaml",)
    refused(attnfuzz(command, *program, "--toolchain", "/bin/ls"), "--toolchain", "/bin/ls is none")


@pytest.mark.parametrize("group", [(), ("bench",)])
def test_a_command_without_arguments_shows_its_help(group: tuple[str, ...], attnfuzz: Run) -> None:
    result = attnfuzz(*group)
    assert result.returncode == 0 and result.stderr == ""
    assert "Usage: attnfuzz" in result.stdout


def test_programs_of_a_function_of_ones_own_can_be_tried(attnfuzz: Run) -> None:
    refused(attnfuzz("generate", "--profile", "function"), "--function MODULE:NAME")
    given = attnfuzz("generate", "--profile", "function", "--function", "a.b:c", "--count", "3")
    assert given.returncode == 0 and given.stdout.count("target: a.b:c") == 3


def test_replay_takes_the_ids_that_show_takes(attnfuzz: Run) -> None:
    cases = ROOT / "corpus" / "cases"
    first, *others = sorted(path.name.partition("-")[0] for path in cases.iterdir())
    begins = [one[0] for one in (first, *others)]
    shared = next(letter for letter in begins if begins.count(letter) > 1)
    unknown, ambiguous = attnfuzz("replay", "f" * 8), attnfuzz("replay", shared)
    refused(unknown, "f" * 8, "expected a bucket of", first)
    refused(ambiguous, f"{shared}: expected the beginning of one id")
    shown = attnfuzz("show", shared, "--dir", cases)
    assert ambiguous.stderr == shown.stderr
    refused(attnfuzz("replay", first, "--dir", "/nowhere"), "/nowhere")
    refused(attnfuzz("replay", "nothing.yaml"), "nothing.yaml: expected a case")


def test_what_is_installed_is_found_from_any_folder(scratch: Path, attnfuzz: Run) -> None:
    told = json.loads(attnfuzz("triage", "corpus/cases", "--json", cwd=scratch).stdout)
    assert len(told["buckets"]) == len(list((ROOT / "corpus" / "cases").glob("*/bucket.yaml")))
    for name in ("configs/smoke.yaml", "smoke", "smoke.yaml"):
        refused(attnfuzz("launch", name, "--minutes", "0", cwd=scratch), "--minutes")
    (scratch / "configs").mkdir()
    (scratch / "configs" / "smoke.yaml").write_text("minutes: mine\n")
    for name in ("configs/smoke.yaml", "smoke", "smoke.yaml"):
        refused(attnfuzz("launch", name, cwd=scratch), "configs/smoke.yaml: minutes", "'mine'")
    for name in ("configs/none.yaml", "none", "configs/../../secret.yaml", "/configs/smoke.yaml"):
        refused(attnfuzz("launch", name, cwd=scratch), name)


def shell(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a shell line in which `attnfuzz` is the checkout's."""
    function = f'attnfuzz() {{ "{sys.executable}" -m attnfuzz "$@"; }}; {script}'
    return subprocess.run(
        ["bash", "-c", function],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", ["generate --count 200 --json", "render p.yaml"])
def test_a_full_disk_below_the_output_is_one_sentence(command: str, scratch: Path) -> None:
    (scratch / "p.yaml").write_text("seed: 1\n")
    result = shell(f"attnfuzz {command} > /dev/full", scratch)
    assert result.returncode == EXIT_BAD_INPUT
    assert result.stderr == "attnfuzz: the output: no space left on device\n"


def test_a_reader_that_leaves_early_is_no_error(scratch: Path) -> None:
    result = shell("attnfuzz generate --seed 1 --count 400 --json | head -1", scratch)
    assert result.stderr == ""
    assert json.loads(result.stdout)["seed"] >= 0


def test_a_seed_gives_the_same_bytes_in_every_process(scratch: Path, attnfuzz: Run) -> None:
    arguments = ("generate", "--seed", "7", "--count", "120", "--json")
    first = attnfuzz(*arguments, PYTHONHASHSEED="1")
    second = attnfuzz(*arguments, cwd=scratch, PYTHONHASHSEED="2")
    fewer = attnfuzz("generate", "--seed", "7", "--count", "60", "--json")
    assert first.returncode == second.returncode == 0
    assert first.stdout == second.stdout
    assert first.stdout.startswith(fewer.stdout)
    assert len(set(first.stdout.splitlines())) > 100


def test_every_generated_document_is_a_program_file(scratch: Path, attnfuzz: Run) -> None:
    documents = attnfuzz("generate", "--seed", "5", "--count", "3").stdout.split("---\n")
    lines = attnfuzz("generate", "--seed", "5", "--count", "3", "--json").stdout.splitlines()
    assert len(documents) == len(lines) == 3
    for document, line in zip(documents, lines, strict=True):
        (scratch / "a.yaml").write_text(document)
        (scratch / "b.yaml").write_text(line)
        from_yaml = attnfuzz("render", scratch / "a.yaml")
        from_json = attnfuzz("render", scratch / "b.yaml")
        assert from_yaml.stdout == from_json.stdout
        compile(from_yaml.stdout, "<rendered>", "exec")


@pytest.mark.parametrize("arguments", [("--help",), ("generate", "--count", "3"), ("render", "-")])
def test_neither_torch_nor_ray_is_imported(arguments: tuple[str, ...]) -> None:
    check = (
        "import sys; from attnfuzz.fuzz.cli.app import main; code = main(sys.argv[1:]); "
        "loaded = {'torch', 'ray', 'numpy'} & set(sys.modules); "
        "sys.exit(code or (f'loaded {loaded}' if loaded else 0))"
    )
    result = subprocess.run(
        [sys.executable, "-c", check, *arguments],
        cwd=ROOT,
        input="seed: 3\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_every_command_has_help_with_an_example_or_its_exit_codes(attnfuzz: Run) -> None:
    for command in ("launch", "run", "replay", "triage", "show", "minimize", "generate", "render"):
        result = attnfuzz(command, "--help")
        assert result.returncode == 0
        assert f"attnfuzz {command}" in result.stdout.replace("Usage: attnfuzz", "")
        assert "--json" in result.stdout


def test_defects_of_ours_are_no_sentences() -> None:
    assert sentence(KeyError("x")) is None
    assert sentence(FileNotFoundError(errno.ENOENT, "No such file")) is None
    assert sentence(UserError("two\nlines")) == "two lines"


def test_a_full_disk_is_a_sentence_that_names_the_file() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/data/x")
    assert sentence(full) == "/data/x: no space left on device"
    assert os_sentence(full, Path("here")) == "here: no space left on device"

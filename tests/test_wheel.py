"""What is installed from a wheel works in a project that has packages `fuzz`, `actors`, `corpus`
and `generators` of its own, from any folder, with the README's paths."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "campaigns", "build", "dist", "*.egg-info", "__pycache__", ".*_cache"
)
CASE = "02951761"  # eager, wrong on every machine
POISON = 'raise ImportError("a package of the project was taken for one of attnfuzz")\n'
ONLY_WITH_TORCH = f'import sys\n\nif "torch" not in sys.modules:\n    {POISON}'
"""Programs import torch first; the command line and its workers never do."""
FUNCTION = """\
import torch.nn.functional as F


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)
"""
CALLS_IT = 'kernel: {kind: function, target: "actors.attention:attend"}\n'
STRATEGIES = """\
from hypothesis import HealthCheck, given, settings
from attnfuzz.generators.render.module import source
from attnfuzz.generators.strategies.programs import programs


@settings(max_examples=3, database=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_it(program):
    compile(source(program), "<program>", "exec")


test_it()
"""

Result = subprocess.CompletedProcess[str]


def checked(*command: object, cwd: Path, timeout: float = 300, **environment: str) -> str:
    """What the command prints to stdout, once it has ended well."""
    result = ran(*command, cwd=cwd, timeout=timeout, **environment)
    assert result.returncode == 0, (command, result.stdout[-2000:], result.stderr[-2000:])
    return result.stdout


def ran(*command: object, cwd: Path, timeout: float = 300, **environment: str) -> Result:
    plain = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=plain | environment, capture_output=True, text=True,
        timeout=timeout,
    )  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository: building writes beside what it reads."""
    copy = tmp_path_factory.mktemp("sources") / "attnfuzz"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
    return copy


def wheel_of(source: Path, into: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation")
    checked(*pip, "--no-index", "-w", into, source, cwd=into)
    (wheel,) = into.glob("attnfuzz-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of(sources, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bin` of a fresh environment with the wheel; all else is that of the one we run in, by a path
    of which no .pth file is read: an editable attnfuzz there is not seen."""
    home = tmp_path_factory.mktemp("venv")
    checked(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    site = Path(
        checked(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=home).strip()
    )
    (site / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    install = ("install", "-q", "--no-deps", "--no-index", "--ignore-installed", wheel)
    checked(sys.executable, "-m", "pip", "--python", python, *install, cwd=home)
    return home / "bin"


@pytest.fixture
def project(scratch: Path) -> Path:
    """A project with packages of our folders' names; `actors` is one that programs may use."""
    for name in ("fuzz", "corpus", "generators", "actors"):
        (scratch / name).mkdir()
        (scratch / name / "__init__.py").write_text(ONLY_WITH_TORCH if name == "actors" else POISON)
    (scratch / "actors" / "attention.py").write_text(FUNCTION)
    (scratch / "plain.yaml").write_text("seed: 1\n")
    (scratch / "own.yaml").write_text(CALLS_IT)
    return scratch


@pytest.fixture(params=["", "."], ids=["plain", "on PYTHONPATH"])
def attnfuzz(
    request: pytest.FixtureRequest, bin_folder: Path, project: Path
) -> Callable[..., Result]:
    """Runs the installed command in the project, which may be on PYTHONPATH."""
    variables = {"PYTHONPATH": str(project)} if request.param else {}

    def run(*arguments: object, timeout: float = 300) -> Result:
        command = bin_folder / "attnfuzz"
        return ran(command, *arguments, cwd=project, timeout=timeout, **variables)

    return run


def test_what_is_imported_is_what_is_installed(bin_folder: Path, project: Path) -> None:
    where = "import attnfuzz, attnfuzz.fuzz; print(attnfuzz.__file__, attnfuzz.fuzz.__file__)"
    for folder in (project, ROOT / "tests"):
        for file in checked(bin_folder / "python", "-c", where, cwd=folder).split():
            assert Path(file).is_relative_to(bin_folder.parent)


def test_a_source_distribution_gives_the_same_wheel(
    sources: Path, wheel: Path, tmp_path: Path
) -> None:
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    checked(sys.executable, "-c", build, cwd=sources)
    (sdist,) = tmp_path.glob("attnfuzz-*.tar.gz")
    other = tmp_path / "again"
    other.mkdir()
    assert names(wheel_of(sdist, other)) == names(wheel)
    assert "attnfuzz/configs/overnight.yaml" in names(wheel)
    assert "attnfuzz/actors/targets/virtual_card/device.cpp" in names(wheel)


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_readmes_paths_are_what_is_installed(attnfuzz: Callable[..., Result]) -> None:
    buckets = json.loads(attnfuzz("triage", "corpus/cases", "--json").stdout)["buckets"]
    assert CASE in {bucket["id"] for bucket in buckets}
    shown = attnfuzz("show", CASE, "--dir", "corpus/cases", "--json")
    assert json.loads(shown.stdout)["id"] == CASE
    helped = attnfuzz("launch", "configs/overnight.yaml", "--minutes", "-1")
    assert helped.returncode == 2 and "--minutes" in helped.stderr  # the file was found
    assert attnfuzz("launch", "configs/overnite.yaml").returncode == 2


def test_what_is_the_users_wins(attnfuzz: Callable[..., Result], project: Path) -> None:
    (project / "configs").mkdir()
    (project / "configs" / "smoke.yaml").write_text("minutes: never\n")
    for name in ("configs/smoke.yaml", "smoke"):
        told = attnfuzz("launch", name)
        assert told.returncode == 2 and "configs/smoke.yaml: minutes" in told.stderr
    assert not (project / "campaigns").exists()


def test_programs_and_cases_run(attnfuzz: Callable[..., Result], project: Path) -> None:
    generated = attnfuzz("generate", "--seed", "7")
    assert generated.returncode == 0, generated.stderr
    (project / "generated.yaml").write_text(generated.stdout)
    rendered = attnfuzz("render", "generated.yaml")
    assert "def attention" in rendered.stdout
    passed = attnfuzz("run", "plain.yaml")
    assert passed.returncode == 0 and "passed" in passed.stdout, passed.stderr
    replayed = attnfuzz("replay", CASE)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "1 case: 1 as recorded" in replayed.stdout
    targets = attnfuzz("targets", "--json")
    assert targets.returncode == 0, targets.stderr


def test_a_campaign_runs_by_the_name_of_its_configuration(bin_folder: Path, project: Path) -> None:
    """It has a preload file, which lies beside it, and is executed before anything is fuzzed. The
    project's packages are on PYTHONPATH, which is harder than if they were not."""

    def attnfuzz(*arguments: str) -> Result:
        command, own = bin_folder / "attnfuzz", str(project)
        return ran(command, *arguments, cwd=project, timeout=500, PYTHONPATH=own)

    ended = attnfuzz("launch", "npu_stand_in", "--minutes", "0.1", "--workers", "1")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "not run" not in ended.stdout
    triaged = attnfuzz("triage", "--json")
    assert json.loads(triaged.stdout)["directory"] == "campaigns/npu_stand_in"


def test_a_function_of_the_project_is_found_where_pythonpath_says(
    bin_folder: Path, project: Path
) -> None:
    command = bin_folder / "attnfuzz"
    (project / "preload.py").write_text("from actors.attention import attend\n")
    (project / "campaign.yaml").write_text(
        "minutes: 0.1\nworkers: 1\nshard_size: 2\nprofiles: {function: 1}\npreload: [preload.py]\n"
        'functions: [{target: "actors.attention:attend"}]\n'
    )
    own = str(project)
    mine = ("own.yaml", "--allow-function", "actors.attention:attend")
    checked(command, "run", *mine, "--preload", "preload.py", cwd=project, PYTHONPATH=own)
    ended = ran(command, "launch", "campaign.yaml", cwd=project, timeout=500, PYTHONPATH=own)
    assert ended.returncode == 0 and "not run" not in ended.stdout, ended.stdout + ended.stderr
    for arguments in (mine, ("plain.yaml", "--preload", "preload.py")):
        refused = ran(command, "run", *arguments, cwd=project)
        assert refused.returncode == 2
        assert "No module named 'actors'" in refused.stderr


def test_python_m_and_the_strategies_in_the_projects_own_folder(
    bin_folder: Path, project: Path
) -> None:
    python = bin_folder / "python"
    assert "passed" in checked(python, "-m", "attnfuzz", "run", "plain.yaml", cwd=project)
    checked(python, "-c", STRATEGIES, cwd=project)
    checked(python, "-c", STRATEGIES, cwd=project, PYTHONPATH=str(project))

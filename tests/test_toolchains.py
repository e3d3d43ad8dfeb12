"""Toolchains that have a name: which there are, what a name stands for, how they are made. Nothing
is downloaded: the releases of torch that are installed here are fakes of a few lines."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.toolchains import making, named
from attnfuzz.fuzz.toolchains.named import RECORD, find, resolve, shown, toolchains, unusable
from attnfuzz.fuzz.toolchains.releases import releases
from tests.support.fake_toolchains import fake_index


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "toolchains"
    monkeypatch.setenv(named.VARIABLE, str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # a machine may cap the release of torch
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # nor its indexes; --extra-index-url is ignored too
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")  # without uv
    return folder


def there(home: Path, name: str, torch: str = "2.15.0+cpu") -> Path:
    """A toolchain as it lies on disk, with this interpreter."""
    folder = home / name
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text("")
    (folder / RECORD).write_text(json.dumps({"torch": torch, "python": "3.11.7"}))
    return folder


def test_a_name_stands_for_its_interpreter(home: Path, tmp_path: Path) -> None:
    folder = there(home, "nightly")
    assert resolve("nightly", "--toolchain") == folder / "bin" / "python"
    assert shown(str(folder / "bin" / "python")) == "nightly"
    assert resolve(sys.executable, "--toolchain") == Path(sys.executable)
    (tmp_path / "python").symlink_to(sys.executable)
    assert resolve("python", "--toolchain", tmp_path) == tmp_path / "python"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            "2.15",
            "--toolchain: expected a Python interpreter or the name of a toolchain, got 2.15,",
        ),
        ("no/python", "which is not a file"),
        ("../x", "which is not a file"),
    ],
)
def test_what_is_neither_is_one_sentence(given: str, says: str) -> None:
    with pytest.raises(UserError, match=says.replace(".", r"\.")):
        resolve(given, "--toolchain")


def test_what_is_not_whole_is_no_toolchain(home: Path) -> None:
    there(home, "good")
    (there(home, "torn") / RECORD).write_text('{"torch": ')
    (there(home, "empty") / RECORD).unlink()
    (there(home, "headless") / "bin" / "python").unlink()
    there(home, ".unfinished-new")
    assert [one.name for one in toolchains()] == ["good"]
    assert unusable() == ["empty", "headless", "new", "torn"]
    assert find("../toolchains/good") is None


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a b", "-x", "x" * 65, "a\n"])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="toolchain NAME: expected"):
        making.make(name, "2.15.0")
    with pytest.raises(UserError, match="toolchain NAME: expected"):
        making.remove(name)


@pytest.mark.parametrize(
    ("torch", "indexes", "packages", "says"),
    [
        ("latest", (), (), "--torch: expected a version"),
        ("2.15; x", (), (), "--torch: expected a version"),
        ("2.15.0", ("pypi",), (), "--index: expected an address"),
        ("2.15.0", (), ("--index-url=x",), "--with: expected a package"),
    ],
)
def test_what_is_given_is_checked_first(
    home: Path, torch: str, indexes: tuple[str, ...], packages: tuple[str, ...], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        making.make("new", torch, indexes=indexes, packages=packages)
    assert not home.exists()


def test_a_release_is_asked_for_as_it_is_meant() -> None:
    assert making.requirement("2.15", "") == "torch==2.15.*"
    for version in ("2.15.0", "2.15.0+cpu", "2.16.0.dev20261101", "2.16rc1"):
        assert making.requirement(version, "") == f"torch=={version}"


def test_releases_are_found_in_the_toolchains_that_are_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnfuzz.fuzz.toolchains.releases.version", lambda name: "2.13.0+cpu")
    there(home, "a", "2.11.1+cpu"), there(home, "b", "2.11.2+cu130"), there(home, "c", "2.12.0")
    found = releases("2.11..2.14", "--torch")
    assert [one.version for one in found] == ["2.11", "2.12", "2.13", "2.14"]
    pythons = [str(home / name / "bin" / "python") for name in "bc"]
    assert [one.python for one in found] == [*pythons, sys.executable, None]
    assert [one.python is None for one in releases("2.12.0,2.12.1", "--torch")] == [False, True]
    assert found[0].has("2.11.9+xpu") and not found[0].has("2.1.1") and not found[0].has("?")


@pytest.mark.parametrize("given", ["2.11", "2.15..2.11", "2.11..3.0", "2.11...2.15", "2.1,two", ""])
def test_releases_that_are_refused(given: str) -> None:
    with pytest.raises(UserError, match="--torch: expected"):
        releases(given, "--torch")


def test_only_one_process_makes_a_toolchain(home: Path) -> None:
    home.mkdir()
    with (home / ".lock-new").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="new: another process makes or removes it"):
            making.make("new", "2.15.0")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An index of fake releases: one that works, one whose import fails, one that takes long."""
    monkeypatch.delenv("PIP_NO_INDEX")
    folder = tmp_path / "index"
    url = fake_index(
        folder, v9_9_1="", v9_9_3="raise OSError('libfake.so: no such file')",
        v9_8_0="import time; open(__file__ + '.imported', 'w'); time.sleep(600)",
    )  # fmt: skip
    monkeypatch.setenv("PIP_INDEX_URL", url)
    return url


@pytest.mark.slow
def test_what_pip_finds_in_conflict_is_said(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap = tmp_path / "constraints.txt"
    cap.write_text("torch<=9.8\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(cap))
    with pytest.raises(UserError, match=r"The user requested \(constraint\) torch<=9\.8"):
        making.make("fake-torch", "9.9.1", indexes=[index])


@pytest.mark.slow
def test_a_toolchain_is_made_used_and_taken_away(home: Path, index: str) -> None:
    made = making.make("fake-torch", "9.9.1", indexes=[index])
    assert made.record.torch == "9.9.1" and find("fake-torch") == made
    said = subprocess.run(
        [made.python, "-c", "import sys, torch; print(torch.__version__, sys.prefix)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.split() == ["9.9.1", str(home / "fake-torch")]
    with pytest.raises(UserError, match="fake-torch: is there; `attnfuzz toolchain remove"):
        making.make("fake-torch", "9.9.1")
    for version, why in (("9.9", "cannot be imported: OSError: libfake"), ("9.7.0", "installed")):
        with pytest.raises(making.MakingFailed, match=why):
            making.make("broken", version, indexes=[index])
    assert [one.name for one in toolchains()] == ["fake-torch"] and not unusable()
    making.remove("fake-torch")
    assert not toolchains() and not list(home.glob("[!.]*"))
    with pytest.raises(UserError, match="fake-torch: there is none"):
        making.remove("fake-torch")


MAKE = "import sys; from attnfuzz.fuzz.toolchains.making import make; make('cut', '9.8.0')"


@pytest.mark.slow
def test_one_that_was_killed_is_no_toolchain_and_is_made_again(home: Path, index: str) -> None:
    maker = subprocess.Popen([sys.executable, "-c", MAKE], start_new_session=True)
    end = time.monotonic() + 120
    while not list(home.glob(".unfinished-cut/lib/*/site-packages/torch/*.imported")):
        assert time.monotonic() < end and maker.poll() is None
        time.sleep(0.05)
    os.killpg(maker.pid, signal.SIGKILL)
    maker.wait()
    assert not toolchains() and unusable() == ["cut"]
    assert making.make("cut", "9.9.1").record.torch == "9.9.1"
    assert not unusable()

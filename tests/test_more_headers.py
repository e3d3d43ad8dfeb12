"""Headers that texts have beside the precompiled one are precompiled too, once several have."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from attnfuzz.actors.sandbox import headers, more_headers
from attnfuzz.actors.sandbox.more_headers import WANTED, MoreHeaders

TEXT = "\n#include <prefix.h>\n#include <more.h>\n\nint both = of_prefix() + of_more();\n"
OPTIONS = ("-O1", "-fPIC", "-Wall")


class Folder:
    """Headers and texts in a folder of their own, which are compiled as Inductor does it."""

    def __init__(self, folder: Path) -> None:
        self.headers, self.zygote = folder / "headers", folder / "zygote"
        for one in (self.headers, self.zygote):
            one.mkdir()
        (folder / "prefix.h").write_text("#pragma once\ninline int of_prefix() { return 1; }\n")
        (folder / "more.h").write_text("#pragma once\ninline int of_more() { return 2; }\n")
        self.prefix = self.headers / "prefix.h"
        self.prefix.write_text("#include <prefix.h>\n")
        self.folder, self.count = folder, 0

    def command(self, text: str = TEXT, *options: str) -> list[str]:
        """What Inductor would call for another text."""
        self.count += 1
        source = self.folder / f"text{self.count}.cpp"
        source.write_text(text)
        words = ["g++", str(source), *OPTIONS, *options, "-c", "-include", str(self.prefix)]
        return [*words, f"-I{self.folder}", "-o", str(source.with_suffix(".o")), "-ltorch"]

    def ours(self, command: list[str]) -> list[str]:
        return MoreHeaders(self.zygote).command(command, str(self.folder))

    def built(self) -> list[Path]:
        return sorted(self.headers.glob("*.gch"))


@pytest.fixture
def there(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def compiled(command: list[str]) -> bytes:
    """The machine code that the compiler makes, and what it refers to."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    output = command[command.index("-o") + 1]
    shown = subprocess.run(["objdump", "-dr", output], check=True, capture_output=True).stdout
    return shown.split(b"\n", 3)[3]


def test_what_several_texts_begin_with_is_precompiled(there: Folder) -> None:
    commands = [there.command() for _ in range(WANTED + 1)]
    given = [there.ours(command) for command in commands]
    assert given[: WANTED - 1] == commands[: WANTED - 1]
    [built] = there.built()
    for ours, torchs in zip(given[WANTED - 1 :], commands[WANTED - 1 :], strict=True):
        changed = [(a, b) for a, b in zip(ours, torchs, strict=True) if a != b]
        assert changed == [(str(built.with_suffix("")), str(there.prefix))]
        assert compiled(ours) == compiled(torchs)
    last = [*given[-1], "-H", "-Winvalid-pch"]
    read = subprocess.run(last, check=True, capture_output=True, text=True).stderr
    assert f"! {built}" in read and "more.h" not in read


def test_another_zygote_takes_it_at_once(there: Folder, tmp_path: Path) -> None:
    for _ in range(WANTED):
        there.ours(there.command())
    there.zygote = tmp_path / "another"
    there.zygote.mkdir()
    command = there.command()
    assert there.ours(command) != command


def test_a_header_that_was_changed_is_read_anew(there: Folder, tmp_path: Path) -> None:
    for _ in range(WANTED):
        there.ours(there.command())
    (tmp_path / "more.h").write_text("#pragma once\ninline int of_more() { return 3; }\n")
    there.zygote = tmp_path / "another"
    there.zygote.mkdir()
    command = there.command()
    assert there.ours(command) == command


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("#include <prefix.h>\nint x;\n", ()),
        ("int x;\n#include <prefix.h>\n#include <more.h>\n", ()),
        ("#include <more.h>\n#include <prefix.h>\n", ()),
        (TEXT, ("also.cpp",)),
        (TEXT.replace("more.h", "none.h"), ()),
    ],
)
def test_other_texts_are_compiled_as_torch_asks(
    there: Folder, text: str, options: tuple[str, ...]
) -> None:
    for _ in range(WANTED + 1):
        command = there.command(text, *options)
        assert there.ours(command) == command
    assert not there.built()


def test_other_options_have_a_header_of_their_own(there: Folder) -> None:
    for options in ((), ("-O2",)):
        for _ in range(WANTED):
            there.ours(there.command(TEXT, *options))
    assert len(there.built()) == 2


def test_what_cannot_be_built_is_tried_once(there: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def refuse(header: Path, options: list[str], lines: list[str]) -> None:
        calls.append(options)
        raise subprocess.CalledProcessError(1, options)

    monkeypatch.setattr(more_headers, "_build", refuse)
    for _ in range(2 * WANTED):
        command = there.command()
        assert there.ours(command) == command
    assert len(calls) == 1


def test_a_torn_header_is_built_anew(there: Folder) -> None:
    for _ in range(WANTED):
        there.ours(there.command())
    [built] = there.built()
    whole, done = built.read_bytes(), Path(f"{built}{headers.DONE}")
    done.unlink()
    built.write_bytes(whole[:100])
    command = there.command()
    assert there.ours(command) != command
    assert len(built.read_bytes()) > len(whole) / 2 and done.exists()


def test_the_oldest_headers_go(there: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    for age, options in enumerate((("-O0",), ("-O2",), ("-O3",))):
        for _ in range(WANTED):
            there.ours(there.command(TEXT, *options))
        [new] = [one for one in there.built() if one not in made]
        os.utime(new, (age, age))
        made.append(new)
        monkeypatch.setattr(headers, "MOST_BYTES", 2.5 * new.stat().st_size)
    assert there.built() == sorted(made[1:])
    assert not Path(f"{made[0]}{headers.DONE}").exists()


def test_what_is_compiled_with_is_not_the_oldest(there: Folder) -> None:
    """With a header of torch's own as with one of ours."""
    prefix = there.prefix.with_name("prefix.h.gch")
    prefix.touch()
    for _ in range(WANTED):
        there.ours(there.command())
    for one in there.built():
        os.utime(one, (1, 1))
    there.ours(there.command())
    ours, torchs = there.built()
    assert ours.stat().st_mtime > 1 and torchs == prefix and torchs.stat().st_mtime == 1
    there.ours(there.command("int x;"))
    assert torchs.stat().st_mtime > 1

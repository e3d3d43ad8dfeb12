"""What the documents say is true of the code: paths, names, links, commands, options, defaults.

`PAGES` are all documents; a check that finds something names the page and the text.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import HealthCheck, settings
from pydantic import BaseModel

from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.fuzz import bench
from attnfuzz.fuzz.campaign.config import CampaignConfig, config_from_data
from attnfuzz.fuzz.cli.app import app
from attnfuzz.generators.model.codec import valid_from_data
from attnfuzz.generators.model.outcome import FailureKind
from attnfuzz.generators.strategies.swarm import PROFILES, UserFunction

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
README, USING, CONFIGURATION = ROOT / "README.md", DOCS / "USING.md", DOCS / "CONFIGURATION.md"
PAGES = [
    README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "corpus/planted/README.md",
    *sorted(DOCS.glob("*.md")),
]  # fmt: skip
PACKAGES = ("actors", "corpus", "fuzz", "generators")
FOLDERS = (*PACKAGES, "attnfuzz", "benchmarks", "configs", "docs", "tests")
SUFFIXES = ("py", "yaml", "md", "cpp", "sh", "txt", "toml")

NOT_OURS = {"sdp_utils.cpp"}
"""Files of torch, and names of no file in particular."""

EXAMPLES = {"program.yaml", "small.yaml", "issue.md"}
"""Names of files that a reader makes."""

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, language: str = r"\w*") -> list[str]:
    """The fenced blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def spans(page: Path) -> list[str]:
    """What stands between backticks in a page's prose; a span may be broken over two lines."""
    return [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", prose(page))]


@functools.cache
def names_of_files() -> frozenset[str]:
    """The names of all files of the repository's folders."""
    return frozenset(
        name for top in FOLDERS for _, _, names in os.walk(ROOT / top) for name in names
    )


# -- files, modules, links -------------------------------------------------------------------


def paths(page: Path) -> Iterator[str]:
    """What looks like a path in the repository: in one of its folders, or named like a file. The
    findings name torch's files, so there only the former."""
    for span in spans(page):
        for text in re.findall(r"[\w.*<>{},/-]+", span):
            text = text.rstrip(".,/")
            top, _, rest = text.partition("/")
            is_file = text.rpartition(".")[2] in SUFFIXES and not text.startswith(".")
            is_file &= page.name != "FINDINGS.md" and top != "torch"
            if any(sign in text for sign in "<>*{}"):
                continue
            if (top in FOLDERS and rest) or (is_file and text not in EXAMPLES | NOT_OURS):
                yield text


@each_page
def test_every_path_exists(page: Path) -> None:
    missing = [
        text
        for text in paths(page)
        if not (ROOT / text).exists()
        and not (page.parent / text).exists()
        and ("/" in text or text not in names_of_files())
    ]
    assert not missing


@each_page
def test_every_dotted_name_exists(page: Path) -> None:
    """`generators.render.source` is a module, or a name that the module's text has."""
    missing = []
    for span in spans(page):
        for text in re.findall(rf"(?:attnfuzz\.)?(?:{'|'.join(PACKAGES)})(?:\.\w+)+", span):
            if text.rpartition(".")[2] in SUFFIXES:
                continue
            parts = text.removeprefix("attnfuzz.").split(".")
            if not any(has_name(parts[:i], parts[i:]) for i in range(len(parts), 0, -1)):
                missing.append(text)
    assert not missing


def has_name(module: list[str], names: list[str]) -> bool:
    path = ROOT.joinpath(*module)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = file.read_text() if file.is_file() else None
    return text is not None and all(re.search(rf"\b{name}\b", text) for name in names)


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_every_page_is_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(([^)\s#]+)\)", README.read_text()))
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} <= linked


# -- commands --------------------------------------------------------------------------------


def commands(page: Path) -> Iterator[list[str]]:
    """What follows `attnfuzz` in lines of blocks, and in spans that name a command."""
    told = [*"\n".join(blocks(page)).splitlines(), *spans(page)]
    for line in told:
        line = re.sub(r"\s(#|> | {3,}).*", "", line.strip())
        found = re.match(r"attnfuzz ([a-z]+\b[^`]*)$", line)
        if found and not line.startswith("attnfuzz ="):
            yield shlex.split(found[1].replace("…", ""))


@functools.cache
def all_commands() -> dict[str, Any]:
    """Every command by name; `bench` is added to the application only when it is called."""
    extra = typer.Typer(callback=lambda: None)
    bench.register(extra)
    return {**typer.main.get_command(app).commands, **typer.main.get_command(extra).commands}  # type: ignore[attr-defined]


@each_page
def test_every_command_and_option_is_one(page: Path) -> None:
    wrong = []
    for words in commands(page):
        command: Any = all_commands().get(words.pop(0))
        while words and hasattr(command, "commands"):  # a group
            command = command.commands.get(words.pop(0))
        if command is None:
            wrong.append(words)
            continue
        known = {name for each in command.params for name in each.opts} | {"--help"}
        wrong += [[word] for word in words if word.startswith("--") and word not in known]
    assert not wrong


def test_commands_are_found() -> None:
    assert ["launch", "configs/overnight.yaml", "--dir", "campaigns/night"] in [*commands(README)]
    assert len([*commands(USING)]) > 15


@each_page
def test_every_make_target_is_one(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    told = re.findall(r"^make ([\w-]+)", "\n".join(blocks(page)), re.MULTILINE)
    told += [found[1] for span in spans(page) if (found := re.fullmatch(r"make ([\w-]+)", span))]
    assert not [name for name in told if not re.search(rf"^{name}:", makefile, re.MULTILINE)]


# -- README and USING ------------------------------------------------------------------------


def test_the_readme_is_short_and_shows_a_shipped_script() -> None:
    assert len(README.read_text().splitlines()) <= 150
    (script,) = blocks(README, "python")
    [case] = (ROOT / "corpus" / "cases").glob("5023b693-*/*/repro.py")
    assert script == case.read_text()


def test_every_target_and_configuration_is_told() -> None:
    text = USING.read_text()
    assert [name for name in TARGETS if f"`{name}`" not in text] == []
    shipped = sorted((ROOT / "configs").glob("*.yaml"))
    assert [file.name for file in shipped if f"`configs/{file.name}`" not in text] == []


def test_every_kind_of_failure_is_told() -> None:
    text = (DOCS / "ARCHITECTURE.md").read_text()
    assert [kind.value for kind in FailureKind if f"| `{kind.value}` |" not in text] == []


def test_pieces_of_a_configuration_are_valid() -> None:
    found = [yaml.safe_load(block) for block in blocks(USING, "yaml")]
    programs = [data for data in found if "kernel" in data]
    assert len(programs) == 1 and len(found) == 4
    for data in programs:
        valid_from_data(data, "USING.md")
    for data in (data for data in found if data not in programs):
        for made in (
            "toolchain",
            "baseline",
            "toolchains",
        ):  # by `make kernels` and `toolchain add`
            data.pop(made, None)
        config_from_data(data, "USING.md", ROOT / "configs")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_strategies_serve_a_test_of_ones_own() -> None:
    (example,) = [text for text in blocks(USING, "python") if "@given" in text]
    compiled: list[str] = []

    def my_compiler(attention: Any) -> Any:
        compiled.append(attention.__name__)
        return attention

    names: dict[str, Any] = {"my_compiler": my_compiler}
    exec(compile(example, "<the example>", "exec"), names)  # else its source is looked up there
    few = settings(
        max_examples=10,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    few(names["test_my_compiler"])()
    assert set(compiled) == {"attention"}


# -- the reference of configurations ---------------------------------------------------------


def rows() -> dict[str, tuple[str, str, str]]:
    """The rows of the reference: type, default and meaning by key."""
    found = re.findall(r"^\| `([\w.\[\]]+)` \| (.*) \| (.*) \| (.*) \|$", CONFIGURATION.read_text(),
                       re.MULTILINE)  # fmt: skip
    assert len({key for key, *_ in found}) == len(found), "a key stands there twice"
    return {key: (kind, default, meaning) for key, kind, default, meaning in found}


def keys() -> Iterator[tuple[str, Any]]:
    """Every key of a configuration with its default as data, `...` where it has none."""
    plain = CampaignConfig().model_dump(mode="json")
    for name, field in CampaignConfig.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and (issubclass(section, BaseModel) or is_dataclass(section)):
            yield from ((f"{name}.{part}", plain[name][part]) for part in plain[name])
        else:
            yield name, plain[name]
    function = UserFunction(target="module:name")
    for name in UserFunction.__dataclass_fields__:
        value = getattr(function, name)
        value = list(value) if isinstance(value, tuple) else value
        yield f"functions[].{name}", ... if name == "target" else value


def test_the_reference_has_every_key_with_its_default() -> None:
    told, true = rows(), dict(keys())
    assert told.keys() == true.keys()
    for key, (_, default, meaning) in told.items():
        assert meaning.strip()
        shown = ... if default == "required" else yaml.safe_load(default.strip("`"))
        assert shown == true[key], key


def test_the_reference_has_every_profile() -> None:
    assert [name for name in PROFILES if f"`{name}`" not in CONFIGURATION.read_text()] == []


# -- the glossary ----------------------------------------------------------------------------


def test_each_term_of_the_glossary_stands_once_and_its_names_are_in_the_code() -> None:
    table = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]*) \|$", (DOCS / "GLOSSARY.md").read_text(),
                       re.MULTILINE)  # fmt: skip
    terms = [term.strip() for term, _ in table if term.strip() not in ("term",)]
    assert len(terms) > 50 and len(set(terms)) == len(terms)
    code = "\n".join(
        file.read_text() for top in PACKAGES for file in (ROOT / top).rglob("*.py")
        if "cases" not in file.parts
    )  # fmt: skip
    names = [name for _, cell in table for name in re.findall(r"`(\w+)`", cell)]
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []

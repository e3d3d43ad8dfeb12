"""The configuration of a campaign: what a YAML file under `configs/` may say, checked.

`load_config` is the only way in; whatever is wrong with a file is one `ConfigError` sentence that
names the file, the key and what was expected.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from attnfuzz.actors.sandbox.job import Deadlines, Limits
from attnfuzz.actors.targets.folders import DEFAULT
from attnfuzz.actors.targets.gpu_assignment import MOST_PER_DEVICE
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.targets.target import DEVICE_KERNELS
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.reduce.variants import BASELINE
from attnfuzz.fuzz.toolchains.named import resolve, shown
from attnfuzz.generators.reading.complaints import complaint, mismatch
from attnfuzz.generators.reading.safe_yaml import ProgramError, load_yaml_safely, read_text
from attnfuzz.generators.strategies.swarm import PROFILES, UserFunction

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]

MAX_MINUTES = 60 * 24 * 30
MAX_WORKERS = 1024


class ConfigError(Exception):
    """A campaign's configuration cannot be used; one sentence."""


def _refused(where: object, expected: str, got: str = "") -> ConfigError:
    return ConfigError(f"{mismatch(where, expected, got)}.")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MinimizeConfig(_Section):
    """The budget for minimizing one finding: candidates run, or seconds of the workers' time,
    whichever is first.

    `pool_share` is the share of the workers' time that confirming, minimizing and variants may
    take while new programs are still being tried, `known_share` what of it those findings may take
    that seem to be of known causes.
    """

    max_candidates: Annotated[int, Field(ge=1, le=100_000)] = 600
    seconds: Positive = 600
    pool_share: Share = 0.5
    known_share: Share = 0.1


def _listed(targets: object) -> object:
    """A list of targets gives each the weight 1."""
    if isinstance(targets, list) and all(isinstance(name, str) for name in targets):
        return dict.fromkeys(targets, 1.0)
    return targets


class WorkersConfig(_Section):
    """Workers for one target: `count` of them, or as many as the nodes have room for ("auto"), on
    nodes with Ray's `accelerator_type` and `resources`. Each is on so many `nodes`, and has on each
    `cpus` CPUs, and `devices` of the target's, or one of `per_device` parts of one. `toolchain` is
    an interpreter there, and `runtime_env` is Ray's."""

    count: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | Literal["auto"] = "auto"
    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    cpus: Annotated[int, Field(ge=1, le=1024)] = 1
    devices: Annotated[int, Field(ge=1, le=64)] = 1
    per_device: Annotated[int, Field(ge=1, le=MOST_PER_DEVICE)] | None = None
    accelerator_type: Annotated[str, Field(min_length=1)] | None = None
    resources: dict[str, Positive] = {}
    toolchain: str | None = None
    runtime_env: dict[str, Any] = {}


def _listed_groups(given: object) -> object:
    """One group, or the number of its workers, stands for a list of it."""
    groups = given if isinstance(given, list | tuple) else [given]
    return [one if isinstance(one, dict | WorkersConfig) else {"count": one} for one in groups]


Groups = Annotated[tuple[WorkersConfig, ...], BeforeValidator(_listed_groups), Field(min_length=1)]
Workers = Annotated[
    Annotated[Annotated[int, Field(ge=1, le=MAX_WORKERS)], Tag("number")]
    | Annotated[Annotated[dict[str, Groups], Field(min_length=1)], Tag("groups")],
    Discriminator(lambda given: "groups" if isinstance(given, dict) else "number"),
]


class CampaignConfig(_Section):
    """A whole campaign; `configs/overnight.yaml` and `configs/cuda.yaml` explain the keys."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    minutes: Annotated[float, Field(gt=0, le=MAX_MINUTES)] = 480
    workers: Workers = 2
    ray_address: str | None = None
    runtime_env: dict[str, Any] = {}
    ship_code: bool = True
    workers_per_device: Annotated[int, Field(ge=1, le=MOST_PER_DEVICE)] = 1
    pin_cpus: bool = True
    shard_size: Annotated[int, Field(ge=1, le=10_000)] = 10
    profiles: dict[str, Weight] = Field(default={"mixed": 1.0}, min_length=1)
    functions: tuple[UserFunction, ...] = ()
    targets: Annotated[dict[str, Weight], BeforeValidator(_listed)] = Field(
        default={DEFAULT: 1.0}, min_length=1
    )
    toolchain: str | None = None
    baseline: str | None = None
    toolchains: list[str] = []
    preload: list[Path] = []
    limits: Limits = Limits()
    deadlines: Deadlines = Deadlines()
    confirm_runs: Annotated[int, Field(ge=1, le=100)] = 5
    minimize: MinimizeConfig = MinimizeConfig()
    repro_runs: Annotated[int, Field(ge=0, le=100)] = 3
    variants: bool = True
    max_cases_per_bucket: Annotated[int, Field(ge=1, le=1000)] = 3
    known_issues: Path | None = None
    shipped: bool = True
    corpus: list[Path] = []
    retry: bool = True
    steering: bool = True
    counterfactuals: bool = True
    counterfactuals_checked: Annotated[int, Field(ge=1, le=1000)] = 20
    budgets: bool = False
    yields: bool = False
    feedback: bool = False

    @model_validator(mode="after")
    def _some_weight(self) -> CampaignConfig:
        for key, weights in (("profiles", self.profiles), ("targets", self.targets)):
            if not any(weight > 0 for weight in weights.values()):
                raise ValueError(mismatch(key, "at least one weight above 0", "only zeros"))
        return self

    @property
    def python(self) -> str:
        """The toolchain's interpreter; by default the one that runs us."""
        return self.toolchain or sys.executable

    @property
    def worker_count(self) -> int:
        """How many workers it has at least."""
        if isinstance(self.workers, int):
            return self.workers
        groups = [one for groups in self.workers.values() for one in groups]
        return sum(1 if one.count == "auto" else one.count for one in groups)

    @property
    def has_variants(self) -> bool:
        """Whether minimized programs are run in any other way."""
        return self.variants or bool(self.others)

    @property
    def others(self) -> dict[str, str]:
        """The interpreters of further toolchains that minimized programs run with, by what their
        results are called: "baseline=…" first, then "toolchain=…"."""
        given = [] if self.baseline is None else [(BASELINE, self.baseline)]
        given += [("toolchain=", one) for one in self.toolchains if one != self.baseline]
        found: dict[str, str] = {}
        for sort, python in given:
            name = sort + re.sub(r"[^A-Za-z0-9_.-]+", "-", shown(python))[-60:]
            found[name if name not in found else f"{name}-{len(found)}"] = python
        return found


def load_config(path: Path, **overrides: Any) -> CampaignConfig:
    """Reads a campaign's configuration. `overrides` replace top-level keys and are called options
    in errors (`minutes` is `--minutes`); None leaves one alone.

    Relative paths in the file are relative to the file. Raises ConfigError.
    """
    try:
        data = load_yaml_safely(read_text(path), str(path))
    except ProgramError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(data, dict):
        raise _refused(path, "a mapping of keys to values")
    given = {key: value for key, value in overrides.items() if value is not None}
    for key, value in given.items():
        _check_option(key, value)
    data |= given
    return config_from_data(data, str(path), path.parent)


def _check_option(key: str, value: Any) -> None:
    try:
        CampaignConfig.model_validate({key: value})
    except ValidationError as error:
        raise ConfigError(f"--{complaint(error, {key: value}, CampaignConfig)}.") from error


def config_from_data(data: dict[str, Any], where: str, base: Path = Path()) -> CampaignConfig:
    """The configuration that `data` says; `where` names it in errors. Raises ConfigError."""
    try:
        config = CampaignConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: {complaint(error, data, CampaignConfig)}.") from error
    resolved = config.model_copy(
        update={
            "toolchain": _interpreter(config.toolchain, f"{where}: toolchain", base),
            "baseline": _interpreter(config.baseline, f"{where}: baseline", base),
            "toolchains": [
                _interpreter(one, f"{where}: toolchains[{i}]", base)
                for i, one in enumerate(config.toolchains)
            ],
            "preload": [_absolute(file, base) for file in config.preload],
            "known_issues": _absolute(config.known_issues, base),
            "corpus": [_absolute(folder, base) for folder in config.corpus],
        }
    )
    _check_files(resolved, where)
    _check_profiles(resolved, where)
    return resolved


def _absolute(path: Path | None, base: Path) -> Path | None:
    return None if path is None else Path(os.path.abspath(base / path.expanduser()))


def _interpreter(given: str | None, where: str, base: Path) -> str | None:
    """The interpreter that a toolchain's name or path stands for. Raises ConfigError."""
    if given is None:
        return None
    try:
        python = resolve(given, where, base)
    except UserError as error:
        raise ConfigError(f"{error}.") from None
    if not os.access(python, os.X_OK):
        got = f"{python}, which cannot be executed"
        raise _refused(where, "a Python interpreter", got)
    return str(python)


def _check_files(config: CampaignConfig, where: str) -> None:
    named = [
        *((f"preload[{i}]", "a Python file", file) for i, file in enumerate(config.preload)),
        ("known_issues", "a YAML file of known issues", config.known_issues),
    ]
    for key, what, file in named:
        if file is not None and not file.is_file():
            raise _refused(f"{where}: {key}", what, f"{file}, which is not a file")
        if file in config.preload:
            try:
                read_text(file)  # it is kept beside every case
            except ProgramError as error:
                raise ConfigError(f"{where}: {key}: {error}.") from None
    for i, folder in enumerate(config.corpus):
        if not folder.is_dir():
            got = f"{folder}, which is not a folder"
            raise _refused(f"{where}: corpus[{i}]", "a folder of cases", got)


STAND_IN = "; configs/torch_npu_stand_in.py as preload stands in for torch_npu on a CPU"


def profiles_on(target: str, config: CampaignConfig) -> dict[str, float]:
    """The campaign's profiles whose programs `target` takes, with their weights."""
    return TARGETS[target].profiles(config.profiles, bool(config.preload))


def _check_profiles(config: CampaignConfig, where: str) -> None:
    unknown = sorted(config.profiles.keys() - set(PROFILES))
    if unknown:
        names = ", ".join(sorted(PROFILES))
        raise _refused(f"{where}: profiles.{unknown[0]}", f"one of {names}")
    for name in config.targets:
        if name not in TARGETS:
            names = ", ".join(TARGETS)
            raise _refused(f"{where}: targets.{name}", f"one of {names}")
        if not any(profiles_on(name, config).values()):
            raise _refused(f"{where}: profiles", f"one whose programs {name} can take")
    for profile, weight in config.profiles.items():
        if weight and not any(profile in profiles_on(name, config) for name in config.targets):
            names = ", ".join(config.targets)
            hint = STAND_IN if profile in DEVICE_KERNELS else ""
            fitting = f"one whose programs some target can take, of {names}{hint}"
            raise _refused(f"{where}: profiles.{profile}", fitting)
    if config.profiles.get("function") and not config.functions:
        raise _refused(f"{where}: functions", "some for the profile function to call")

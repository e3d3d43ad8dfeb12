"""A configuration is read whole or refused in one sentence that says where and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnfuzz.fuzz.campaign.config import CampaignConfig, ConfigError, load_config

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "campaign.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["smoke.yaml", "overnight.yaml", "own_kernel.yaml"])
def test_the_shipped_configurations_are_valid(name: str) -> None:
    config = load_config(CONFIGS / name)
    assert config.workers == 2
    assert sum(config.profiles.values()) > 0


def test_an_empty_mapping_means_the_defaults(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "{}")) == CampaignConfig()


def test_overrides_replace_keys_and_none_leaves_them(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "minutes: 5\nworkers: 3\n"), minutes=0.5, workers=None)
    assert (config.minutes, config.workers) == (0.5, 3)


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "fault.py").write_text("")
    config = load_config(written(tmp_path, "preload: [fault.py]\n"))
    assert config.preload == [tmp_path / "fault.py"]


def test_targets_are_weights_or_a_list_of_equals(tmp_path: Path) -> None:
    listed = load_config(written(tmp_path, "targets: [cpu, virtual-sm90]\n"))
    assert listed.targets == {"cpu": 1.0, "virtual-sm90": 1.0}
    weighed = load_config(written(tmp_path, "targets: {cpu: 3, virtual-sm90: 0.5}\n"))
    assert weighed.targets == {"cpu": 3.0, "virtual-sm90": 0.5}


REFUSED = [
    ("minuts: 3", "minuts: unknown key, expected one of seed, minutes"),
    ("limits: {memory: 3}", "limits.memory: unknown key, expected one of memory_mb"),
    ("minutes: soon", "minutes: expected a number, got 'soon'"),
    ("minutes: 0", "minutes: expected a number > 0.0, got 0"),
    ("minutes: -1", "minutes: expected a number > 0.0, got -1"),
    ("minutes: 1.0e+9", "minutes: expected a number <= 43200.0"),
    ("workers: 0", "workers: expected an integer >= 1"),
    ("workers: [2]", "workers: expected an integer, got [2]"),
    ("profiles: {mixed: 0}", "profiles: expected at least one weight above 0"),
    ("profiles: {mixed: -1}", "profiles.mixed: expected a number >= 0.0"),
    ("profiles: {quick: 1}", "profiles.quick: expected one of "),
    ("profiles: {}", "profiles: "),
    ("profiles: {function: 1}", "functions: expected some for the profile function to call"),
    ("functions: [{target: nowhere}]", "functions[0].target: expected module:function"),
    ("functions: [{target: 'a:b', dtypes: []}]", "functions[0].dtypes: "),
    ("functions: [{target: 'a:b', causal: 3}]", "functions[0].causal: "),
    ("targets: {cpu: 0}", "targets: expected at least one weight above 0"),
    ("targets: {virtual-sm90: -1}", "targets.virtual-sm90: expected a number >= 0.0"),
    (
        "targets: [cpu, virtual-sm90]\nprofiles: {multihead_attention: 1}",
        "profiles: expected one whose programs virtual-sm90 can take",
    ),
    ("targets: [tpu]", "targets.tpu: expected one of cpu, cuda, xpu, npu, virtual-sm80"),
    ("deadlines: {compile: 0}", "deadlines.compile: expected a number > 0.0"),
    ("minimize: {pool_share: 1.5}", "minimize.pool_share: expected a number <= 1.0"),
    ("preload: [missing.py]", "preload[0]: expected a Python file, got "),
    ("toolchain: /nowhere/python", "toolchain: expected a Python interpreter or the name of a"),
    ("toolchain: no-such", "toolchain, got no-such, which is neither"),
    (
        "baseline: no-such",
        "baseline: expected a Python interpreter or the name of a toolchain, got",
    ),
    ("toolchains: [python3, no-such]", "toolchains[0]: expected a Python interpreter or the name"),
    ("toolchains: no-such", "toolchains: expected a list"),
    ("known_issues: no.yaml", "known_issues: expected a YAML file of known issues, got "),
    ("- 1", "expected a mapping of keys to values"),
    ("a: &x [1]\nb: *x", ""),
    ("a: !!python/object/apply:os.system ['true']", ""),
    ("seed: 1\nseed: 2", ""),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_is_wrong_is_one_sentence_naming_file_and_key(
    tmp_path: Path, text: str, says: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert says in message
    assert "\n" not in message


def test_an_override_is_checked_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="workers"):
        load_config(written(tmp_path, "{}"), workers=0)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_config(tmp_path / "none.yaml")


def test_noise_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise.yaml"
    path.write_bytes(bytes(range(256)) * 10)
    with pytest.raises(ConfigError, match="noise.yaml"):
        load_config(path)

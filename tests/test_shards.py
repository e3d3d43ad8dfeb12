"""Seeds decide programs, and nothing else does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import strategies as st

from attnfuzz import generators
from attnfuzz.generators.kernels.specs import Function
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.provider import collect
from attnfuzz.generators.strategies.shards import SHARD_SIZE, generate, shard_programs
from attnfuzz.generators.strategies.swarm import (
    FEATURES,
    PROFILES,
    Swarm,
    UserFunction,
    profile_for,
    swarm_for,
)

PACKAGE = Path(generators.__file__).parent
ROOT = Path(__file__).resolve().parent.parent
PROFILE_WEIGHTS = {"eager": 2.0, "inductor-flex": 1.0, "mixed": 1.0}

DIGEST = """
import hashlib, json, sys
{before}
from attnfuzz.generators.model.codec import to_data
from attnfuzz.generators.strategies.shards import generate, shard_programs
programs = generate(7, 120) + shard_programs(3, 5, 30, {{"eager": 1.0, "mixed": 2.0}})
text = "\\n".join(json.dumps(to_data(program)) for program in programs)
print(hashlib.sha256(text.encode()).hexdigest(), "torch" in sys.modules)
"""

OTHER_MODULES = """
from attnfuzz.generators.model import features, outcome, validity
from attnfuzz.generators.shrink import candidates
import importlib.util, pathlib
path = pathlib.Path("local_module.py")
path.write_text("A = [17, 999, 123456, 31, 63]\\nB = 0.125\\n")
spec = importlib.util.spec_from_file_location("local_module", path)
module = importlib.util.module_from_spec(spec)
sys.modules["local_module"] = module
spec.loader.exec_module(module)
from hypothesis import given, settings, strategies as st
@settings(database=None, max_examples=200)
@given(st.tuples(st.integers(0, 40), st.sampled_from(range(300)), st.floats()))
def fill_the_caches_of_constants(values): pass
fill_the_caches_of_constants()
"""


def digest(folder: Path, root: Path, before: str = "", **environment: str) -> str:
    """What a fresh interpreter in `folder`, with our packages in `root`, makes of some seeds."""
    result = subprocess.run(
        [sys.executable, "-c", DIGEST.format(before=before)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_programs_depend_on_the_seed_alone(tmp_path: Path) -> None:
    installed = tmp_path / "lib" / "site-packages"
    copied = installed / "attnfuzz" / "generators"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "attnfuzz" / "__init__.py", copied.parent)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    first = digest(folder, ROOT, PYTHONHASHSEED="0")
    assert not list(folder.iterdir())  # Hypothesis keeps nothing
    others = [
        digest(folder, ROOT, PYTHONHASHSEED="12345", CI="true"),
        digest(folder, ROOT, before=OTHER_MODULES, PYTHONHASHSEED="2"),
        digest(folder, installed, PYTHONHASHSEED="3"),
    ]
    assert first.endswith(" False\n")  # torch was not imported
    assert others == [first] * 3


def test_exactly_the_count_and_a_smaller_count_is_the_beginning() -> None:
    programs = generate(1, 2 * SHARD_SIZE + 7)
    assert len(programs) == 2 * SHARD_SIZE + 7
    assert generate(1, SHARD_SIZE + 3) == programs[: SHARD_SIZE + 3]
    assert generate(1, 0) == []


def test_seeds_give_different_programs() -> None:
    assert not set(map(repr, generate(1, 40))) & set(map(repr, generate(2, 40)))


def test_shards_are_pure_functions_of_their_index() -> None:
    backwards = dict(reversed(PROFILE_WEIGHTS.items()))
    later, earlier = (shard_programs(9, i, 12, PROFILE_WEIGHTS) for i in (4, 3))
    assert shard_programs(9, 3, 12, backwards) == earlier
    assert shard_programs(9, 4, 12, backwards) == later
    assert earlier != later
    assert len({program.seed for program in earlier + later}) == 24


def test_shards_do_not_all_begin_with_the_simplest_program() -> None:
    first = [shard_programs(0, i, 1, {"mixed": 1.0})[0] for i in range(20)]
    kinds = {program.kernel.kind for program in first}
    assert len(kinds) > 1
    assert Program() not in first


def test_a_given_swarm_is_kept_to() -> None:
    swarm = Swarm("mixed", ("kernel.sdpa", "mask.causal", "input.low_precision"))
    programs = generate(5, 150, swarm=swarm)
    assert {program.kernel.kind for program in programs} == {"sdpa"}
    assert {program.mask.kind for program in programs if program.mask} == {"causal"}
    assert {program.q.dtype for program in programs} == {"float32", "bfloat16", "float16"}
    assert not any(program.training or program.calls for program in programs)


def test_profiles_come_in_their_proportions() -> None:
    drawn = [profile_for(0, i, PROFILE_WEIGHTS) for i in range(2000)]
    assert set(drawn) == set(PROFILE_WEIGHTS)
    total = sum(PROFILE_WEIGHTS.values())
    for name, weight in PROFILE_WEIGHTS.items():
        for start in range(0, 2000, 100):  # not only in the long run
            assert abs(drawn[start : start + 100].count(name) - 100 * weight / total) <= 3
    assert {profile_for(0, i, {"eager": 1, "mixed": 0}) for i in range(50)} == {"eager"}


@pytest.mark.parametrize(
    "profiles", [{}, {"mixed": 0.0}, {"nonsense": 1.0}, {"mixed": -1.0}, {"mixed": float("nan")}]
)
def test_bad_profiles_are_refused(profiles: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="profiles"):
        shard_programs(0, 0, 1, profiles)


def test_swarms_differ_and_can_always_make_a_program_of_their_profile() -> None:
    swarms = [swarm_for(0, i, "inductor-flex") for i in range(60)]
    assert all(swarm.has("kernel.flex") for swarm in swarms)
    assert len(set(swarms)) > 40
    assert Swarm("inductor-flex") in swarms
    shares = [len(swarm.features) / len(FEATURES) for swarm in swarms]
    assert min(shares) > 0.25


CAUSAL = UserFunction(target="mine:causal", causal=True, dtypes=("bfloat16",), training=True)
CROSS = UserFunction(target="mine:cross", cross=True)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_profiles_have_only_their_kernels_and_backends(profile: str) -> None:
    weights = PROFILES[profile]
    programs = generate(11, 300, swarm=Swarm(profile, functions=(CAUSAL, CROSS)))
    backends = {program.compile.backend if program.compile else "none" for program in programs}
    assert backends == {name for name, _ in weights.backends}
    assert {program.kernel.kind for program in programs} == {name for name, _ in weights.kernels}


def test_a_users_function_is_asked_for_what_it_says_that_it_does() -> None:
    programs = generate(3, 300, swarm=Swarm("function", functions=(CAUSAL, CROSS)))
    assert not any(problems(program) for program in programs)
    for program in programs:
        assert isinstance(program.kernel, Function)
        causal = program.kernel.target == "mine:causal"
        assert (program.mask is not None) == causal
        assert program.q.dtype == ("bfloat16" if causal else "float32")
        calls = [(program.shape.q_len, program.shape.kv_len)]
        calls += [(call.q_len, call.kv_len) for call in program.calls]
        assert not causal or all(q_len == kv_len for q_len, kv_len in calls)
        assert causal or program.training is None
    assert any(program.training for program in programs)
    assert any(program.shape.q_len != program.shape.kv_len for program in programs)
    with pytest.raises(ValueError, match="functions"):
        Swarm("function")


def test_collecting_from_few_values_still_gives_as_many() -> None:
    values = collect(st.sampled_from("ab"), 3, 50)
    assert len(values) == 50
    assert set(values) == {"a", "b"}

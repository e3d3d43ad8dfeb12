"""Feedback and yields: they decide which shard is next, never what is in one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from attnfuzz.actors.shard import MUTANTS, Tally
from attnfuzz.actors.worker import drawn
from attnfuzz.corpus.store.kept import kept_programs
from attnfuzz.corpus.store.store import Store
from attnfuzz.fuzz.campaign.config import CampaignConfig
from attnfuzz.fuzz.campaign.controller import Campaign
from attnfuzz.fuzz.campaign.shard_numbers import ShardNumbers
from attnfuzz.fuzz.campaign.shards import drawn_again
from attnfuzz.fuzz.campaign.yields import Yields
from attnfuzz.fuzz.errors import UserError
from attnfuzz.fuzz.pool.tasks import Answer, ShardTask, Task
from attnfuzz.generators.model.codec import from_data, program_id
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.mutants import mutants
from attnfuzz.generators.strategies.shards import generate, shard_programs
from attnfuzz.generators.strategies.swarm import profile_for
from tests.support.fake_pool import PASSED, FakePool

Run = Callable[..., "subprocess.CompletedProcess[str]"]

WEIGHTS = {"eager": 3.0, "inductor-flex": 1.0, "graph": 1.0}
CONFIG = CampaignConfig(
    seed=5, minutes=60, shard_size=4, shipped=False, profiles=WEIGHTS, yields=True, feedback=True
)


class Showing(FakePool):
    """Programs show their kernel's features to the compiler, and all pass."""

    def __init__(self, size: int = 2) -> None:
        super().__init__(size)
        self.ran: dict[int, list[Program]] = {}

    def answer(self, task: Task) -> Answer:
        if not isinstance(task, ShardTask):
            return super().answer(task)
        tally, programs = Tally(task.shard), drawn(task.shard)
        for program in programs:
            tally.add(program, PASSED)
            tally.keep(program, [f"kernel of {program_id(program)[:2]}"])
        self.ran[task.shard.index] = programs
        return tally.report(1.0, 0.0)


def run(directory: Path, pool: FakePool, shards: int, config: CampaignConfig = CONFIG) -> None:
    ticks = iter(range(10**9))
    with Store(directory) as store:
        Campaign(
            config,
            directory,
            pool,
            store,
            scratch=directory,
            max_shards=shards,
            clock=lambda: next(ticks) * 0.01,
        ).run()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Showing]:
    directory, pool = tmp_path_factory.mktemp("showing"), Showing()
    run(directory, pool, 30)
    return directory, pool


def test_a_shard_of_mutants_is_drawn_again_from_its_row(
    ran: tuple[Path, Showing], attnfuzz: Run
) -> None:
    directory, pool = ran
    numbers = [index for index in pool.ran if index >= MUTANTS]
    assert len(numbers) > 5
    with Store(directory) as store:
        store.begin(CONFIG.seed, CONFIG.model_dump(mode="json"), {"torch": "2.13.0"})
        for index in (*numbers, 0, 7):
            assert drawn_again(store, index) == pool.ran[index]
        with pytest.raises(UserError, match="shard: expected one that was run, got 999"):
            drawn_again(store, 999)
    result = attnfuzz("generate", "--dir", directory, "--shard", str(numbers[0]), "--json")
    assert [from_data(json.loads(line)) for line in result.stdout.splitlines()] == (
        pool.ran[numbers[0]]
    )


def test_what_other_shards_draw_does_not_depend_on_feedback(ran: tuple[Path, Showing]) -> None:
    _, pool = ran
    drawn_ones = [index for index in pool.ran if index < MUTANTS]
    assert sorted(drawn_ones) == list(range(30))
    for index in drawn_ones:
        assert pool.ran[index] == shard_programs(5, index, 4, WEIGHTS)


def test_only_what_shows_something_new_is_kept(ran: tuple[Path, Showing]) -> None:
    with Store(ran[0], create=False) as store:
        kept = [one for _, one in store.read(kept_programs)]
    shown = [name for one in kept for name in one.shows]
    assert len(shown) == len(set(shown)) > 16


def test_a_resumed_campaign_goes_on_with_what_was_kept(ran: tuple[Path, Showing]) -> None:
    directory, before = ran
    pool = Showing()
    run(directory, pool, 40)
    more = [index for index in pool.ran if index >= MUTANTS]
    assert more and min(more) > max(before.ran)
    assert not pool.ran.keys() & before.ran.keys()


def test_mutants_are_programs_that_follow_from_the_seed() -> None:
    parents, fresh = generate(3, 100)[::5], generate(4, 60)
    made = mutants(9, parents, fresh)
    assert made == mutants(9, parents, fresh) != mutants(10, parents, fresh)
    assert not any(problems(program) for program in made)
    ids = {program_id(program) for program in made}
    assert len(ids) > 50 and not ids & {program_id(one) for one in (*parents, *fresh)}
    with pytest.raises(ValueError, match="parents"):
        mutants(9, [], fresh)


def test_a_profile_that_shows_more_gets_more_time_and_each_keeps_its_floor() -> None:
    yields = Yields({"eager": 1.0, "graph": 1.0, "never": 0.0})
    assert yields.shares() == {"eager": 0.5, "graph": 0.5}
    for _ in range(30):
        yields.learn("eager", 20.0, 0)
        yields.learn("graph", 20.0, 10)
    shares = yields.shares()
    assert shares["graph"] > 0.7 and 0.25 <= shares["eager"] < 0.3
    turns = []
    for _ in range(40):
        turns.append(min(("eager", "graph"), key=yields.turn))
        yields.start(turns[-1])
    assert turns.count("graph") / 40 == pytest.approx(shares["graph"], abs=0.03)


def test_every_number_is_given_once_whatever_the_turns() -> None:
    numbers = ShardNumbers(5, {"cpu": 1.0}, [3, 4, MUTANTS + 2], 60, {"cpu": WEIGHTS})
    found = []
    turn = {"eager": 9.0, "graph": 1.0, "inductor-flex": 5.0}
    while (index := numbers.next(lambda _: True, lambda _, profile: turn[profile])) is not None:
        numbers.take(index)
        found.append(index)
    assert sorted(found) == [index for index in range(60) if index not in (3, 4)]
    order = [profile_for(5, index, WEIGHTS) for index in found]
    assert order == sorted(order, key=lambda name: turn[name])

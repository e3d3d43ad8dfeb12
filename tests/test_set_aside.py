"""A finding whose program machines die of, in a campaign on a pool of deterministic answers; the
machines themselves die in test_cluster."""

from __future__ import annotations

from pathlib import Path

from attnfuzz.corpus.store.machine_deaths import machine_deaths
from attnfuzz.corpus.store.store import State, Store
from attnfuzz.fuzz.pool.tasks import Answer, RunTask, Task, WorkerDied
from attnfuzz.fuzz.report.campaign_rows import apart
from tests.support.fake_campaign import run
from tests.support.fake_pool import FakePool


class Dying(FakePool):
    """No worker survives a program with a mask."""

    def answer(self, task: Task) -> Answer:
        if isinstance(task, RunTask) and any(one.mask is not None for one in task.programs):
            return WorkerDied(2)
        return super().answer(task)


def test_a_finding_that_machines_die_of_is_set_aside(tmp_path: Path) -> None:
    run(tmp_path, Dying(), shipped=False)
    with Store(tmp_path) as store:
        lost = [row.program_id for row in store.failures(state=State.CONFIRMING)]
        once, twice, *_ = lost
        for program, machine in ((once, "a"), (twice, "b"), (twice, "b")):
            store.record_death(program, machine)
        assert store.read(machine_deaths) == {once: ["a"], twice: ["b", "b"]}
    run(tmp_path, Dying(), shipped=False)
    with Store(tmp_path) as store:
        states = {row.program_id: row.state for row in store.failures()}
        assert states[twice] is State.SET_ASIDE and states[once] is State.CONFIRMING
        (row,) = [one for one in apart(store)[0] if one.state == "set aside"]
    assert (row.id, row.title) == (twice, "2 machines died while it ran: b, b")

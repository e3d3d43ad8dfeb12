"""Programs of several ranks: real processes that gloo connects, and what becomes of all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from attnfuzz.actors.sandbox.collectives import Collective, Record
from attnfuzz.actors.sandbox.job import Deadlines, Job
from attnfuzz.actors.sandbox.ranks import Place, summary
from attnfuzz.actors.sandbox.sandbox import Sandbox
from attnfuzz.actors.scripts import run_repro
from attnfuzz.fuzz.pool.tasks import ReproTask
from attnfuzz.generators.kernels.specs import Handwritten
from attnfuzz.generators.model.outcome import FailureKind, Outcome, Phase
from attnfuzz.generators.model.program import Compile, Mesh, Program, Shape, Training
from attnfuzz.generators.render.module import source as rendered
from benchmarks.ranks import BODIES, Programs, left
from tests.support.sources import source

MEET = """
import os
import torch.distributed as dist
if not dist.is_initialized():
    dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
"""


def test_ranks_that_are_elsewhere_than_most_are_named() -> None:
    here, there = (("wait.py", 3, "wait"),), (("other.py", 7, "gather"),)
    assert summary({0: here, 1: here, 2: there}).splitlines()[-1] == "went another way: rank 2"
    assert summary({0: here, 1: there}).splitlines()[-1] == "went 2 ways: rank 0; rank 1"
    assert "rank 1: has ended" in summary({0: here, 1: ()})
    assert len(summary({0: here, 1: here}).splitlines()) == 2


def test_what_each_rank_waits_in_is_beside_where_it_is() -> None:
    here: Place = (("wait.py", 3, "wait"),)
    records = {
        rank: Record(collectives=(collective(name),), groups={"0": (0, 1, 2)})
        for rank, name in enumerate(("all_reduce", "all_reduce", "barrier"))
    }
    *lines, parted = summary(dict.fromkeys(range(4), here), records).splitlines()
    assert lines[0].endswith("; waits in all_reduce, the 1st of group 0 (ranks 0, 1 and 2)")
    assert lines[3].endswith("; gives no record")
    assert parted.startswith("parted at the 1st collective of group 0")
    assert "rank 2: barrier; ranks 0 and 1: all_reduce" in parted


def collective(name: str) -> Collective:
    return Collective(
        group="0", number=1, op=name, dtype="", numel=None, done=False, at="", since_ns=0
    )


def test_what_each_rank_compiled_is_compared_and_says_which_collective_it_waits_for(
    tmp_path: Path,
) -> None:
    places: dict[int, Place] = {}
    for rank in range(3):
        file = tmp_path / f"c{rank}{'q' * 50}.py"
        gathers = "buf2 = torch.ops._c10d_functional.all_gather_into_tensor.default(buf1, 2, '0')"
        between = ["assert_size_stride(buf2, (2, 16), (16, 1))", "# _c10d_functional.wait_tensor"]
        waits = "torch.ops._c10d_functional.wait_tensor.default(buf2)"
        file.write_text("\n".join([f"rank = {rank}", gathers, *between * (1 + rank // 2), waits]))
        wait = ("/site-packages/torch/_ops.py", 3, "redispatch")
        places[rank] = (wait, (str(file), 5 + 2 * (rank // 2), "call"))
    *lines, last = summary(places).splitlines()
    assert all(line.endswith(gathers) for line in lines)
    assert last == "went another way: rank 2"


def run(
    sandbox: Sandbox, body: str, ranks: int = 3, *, confirm_hang: bool = False, **deadlines: float
) -> Outcome:
    job = Job(ranks=ranks, deadlines=Deadlines(**deadlines))
    outcome = sandbox.run(source(MEET + body), job, confirm_hang=confirm_hang)
    assert sandbox.processes() == []
    return outcome


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("compile", [None, Compile(backend="aot_eager")], ids=["eager", "aot"])
def test_sharded_attention_in_real_processes(sandbox: Sandbox, compile: Compile | None) -> None:
    program = Program(
        kernel=Handwritten(),
        shape=Shape(q_heads=2, kv_heads=2, q_len=7, kv_len=9),
        mesh=Mesh(world_size=3, ranks="processes", q="length", k="length", v="length"),
        compile=compile,
        training=Training(),
    )
    outcome = sandbox.run(rendered(program), Job.of(program))
    assert outcome.status == "passed", outcome
    assert sandbox.processes() == []


def test_a_rank_that_crashes_is_named_not_those_it_leaves_alone(sandbox: Sandbox) -> None:
    body = "import ctypes\nif rank == 2: ctypes.string_at(0)\ndist.barrier()"
    failure = run(sandbox, body).failure
    assert failure is not None and failure.raised is not None
    assert (failure.kind, failure.signal) == (FailureKind.CRASH, "SIGSEGV"), failure.evidence
    assert failure.raised.message == "rank 2 was killed by SIGSEGV"
    assert "string_at" in failure.evidence["python_stacks"]


ABORTS_WHILE_IT_IS_TOLD = """
import ctypes, faulthandler, signal
if rank == 2:
    faults = open("faults-2.txt", "a")
    libc = ctypes.CDLL(None)
    faulthandler.disable()
    libc.signal(signal.SIGSEGV, libc.abort)
    faulthandler.enable(faults)
    ctypes.string_at(0)
dist.barrier()
"""


def test_the_first_signal_of_a_rank_is_told_though_another_ends_it(sandbox: Sandbox) -> None:
    failure = run(sandbox, ABORTS_WHILE_IT_IS_TOLD).failure
    assert failure is not None and failure.raised is not None
    assert failure.raised.message == "rank 2 was killed by SIGSEGV"
    assert "Aborted" in failure.evidence["python_stacks"]


def test_a_rank_that_raises_is_told_before_those_it_leaves_alone(sandbox: Sandbox) -> None:
    body = "if rank == 1: raise LookupError('lost its way')\ndist.barrier()"
    failure = run(sandbox, body).failure
    assert failure is not None and failure.raised is not None
    assert (failure.kind, failure.phase) == (FailureKind.RUNTIME_ERROR, Phase.EAGER)
    assert failure.raised.message == "lost its way"
    assert failure.evidence["rank"].startswith("rank 1 of 3")


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_the_first_rank_raises_is_told_though_the_others_wait_for_it(
    sandbox: Sandbox, ranks: int
) -> None:
    body = "if rank == 0: raise LookupError('lost its way')\ndist.barrier()"
    failure = run(sandbox, body, ranks=ranks).failure
    assert failure is not None and failure.raised is not None
    assert (failure.kind, failure.phase) == (FailureKind.RUNTIME_ERROR, Phase.EAGER)
    assert failure.raised.message == "lost its way"
    assert failure.evidence["rank"].startswith(f"rank 0 of {ranks}")


def test_a_rank_whose_result_is_wrong_is_heard(sandbox: Sandbox) -> None:
    failure = run(sandbox, "if rank == 2: q = q + 1\ndist.barrier()").failure
    assert failure is not None
    assert failure.kind is FailureKind.WRONG_RESULT
    assert failure.evidence["rank"].startswith("rank 2 of 3")


def test_a_hang_shows_where_every_rank_waits_and_which_went_another_way(sandbox: Sandbox) -> None:
    body = "import time\nif rank == 2: time.sleep(600)\ndist.barrier()"
    failure = run(sandbox, body, ranks=4, confirm_hang=True, eager=4.0).failure
    assert failure is not None
    assert (failure.kind, failure.phase) == (FailureKind.HANG, Phase.EAGER)
    lines = failure.evidence["ranks"].splitlines()
    assert all("barrier" in lines[rank] for rank in (0, 1, 3)), lines
    assert "time.sleep(600)" in lines[2]
    assert lines[4] == "went another way: rank 2"
    assert "barrier" in failure.evidence["stacks of rank 1"]


def test_ranks_that_all_wait_are_a_hang_before_the_deadline(sandbox: Sandbox) -> None:
    body = "import threading\nif rank == 2: threading.Event().wait()\ndist.barrier()"
    failure = run(sandbox, body, ranks=4, eager=100.0, idle=4.0).failure
    assert failure is not None and failure.raised is not None
    assert failure.raised.message == "all asleep in phase eager for 4 s"
    assert failure.evidence["ranks"].endswith("went another way: rank 2")
    assert "stacks of rank 1" not in failure.evidence  # only of what is confirmed


def test_a_rank_that_dies_before_it_meets_the_others_is_no_hang(sandbox: Sandbox) -> None:
    body = """
import os, signal
import torch.distributed as dist
if os.environ["RANK"] == "2": os.kill(os.getpid(), signal.SIGKILL)
dist.init_process_group("gloo")
"""
    outcome = sandbox.run(source(body), Job(ranks=3), confirm_hang=False)
    assert outcome.failure is not None and outcome.failure.raised is not None
    assert outcome.failure.kind is FailureKind.CRASH
    assert outcome.failure.raised.message == "rank 2 was killed by SIGKILL"
    assert sandbox.processes() == []


def test_a_rank_that_leaves_early_is_a_crash_and_says_what_was_done_before(
    sandbox: Sandbox,
) -> None:
    failure = run(sandbox, "dist.barrier()\nif rank == 1: os._exit(0)\ndist.barrier()").failure
    assert failure is not None and failure.raised is not None
    assert failure.raised.message == "rank 1 exited with code 0, without a result"
    assert "barrier, the 2nd of group 0 (ranks 0, 1 and 2)" in failure.evidence["collectives"]


def test_ranks_in_different_collectives_hang_and_the_place_is_named(sandbox: Sandbox) -> None:
    body = """
one, two = (lambda: dist.all_reduce(q.clone())), (lambda: dist.broadcast(q.clone(), 0))
for step in (two, one) if rank == 1 else (one, two): step()
"""
    failure = run(sandbox, body, idle=3.0, confirm_hang=True).failure
    assert failure is not None and failure.kind is FailureKind.HANG and failure.raised is not None
    assert failure.raised.message == "all asleep in phase eager for 3 s", "the first try decides"
    *lines, parted, away = failure.evidence["ranks"].splitlines()
    assert "waits in broadcast of 16 float32, the 1st of group 0" in lines[1]
    assert parted.startswith(
        "parted at the 1st collective of group 0 (ranks 0, 1 and 2): rank 1: broadcast of 16 float"
    )
    assert "ranks 0 and 2: all_reduce of 16 float32 (program.py:" in parted
    assert away == "went another way: rank 1"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (
            "if rank == 1:\n    import atexit\n    atexit.register(dist.broadcast, q, 1)",
            "collective of group 0 (ranks 0, 1 and 2): rank 1: broadcast of 16 float32",
        ),
        (
            "if rank == 1: dist.isend(q, 2)",
            "message from rank 1 to rank 2 in group 0 (ranks 0, 1 and 2), tag 0: rank 2 receives",
        ),
    ],
    ids=["collective", "message"],
)
def test_ranks_that_pass_but_do_not_do_the_same_together_fail(
    sandbox: Sandbox, body: str, what: str
) -> None:
    failure = run(sandbox, "dist.barrier()\n" + body).failure
    assert failure is not None
    assert (failure.kind, failure.phase) == (FailureKind.METADATA_MISMATCH, Phase.CHECK)
    assert (failure.oracle, failure.layer) == ("collectives", "eager")
    assert [(diff.output, diff.what) for diff in failure.diffs] == [("collectives", "sequence")]
    assert what in failure.evidence["collectives"]


def test_sub_groups_and_messages_in_any_order_are_no_divergence(sandbox: Sandbox) -> None:
    body = """
if not hasattr(dist, "pairs"):
    dist.pairs = [dist.new_group([0, 1]), dist.new_group([2])]
mine = dist.pairs[rank // 2]
for _ in range(1 + rank // 2): dist.all_reduce(q.clone(), group=mine)
sends = [dist.P2POp(dist.isend, q, (rank + 1) % 3)]
receives = [dist.P2POp(dist.irecv, q.clone(), (rank - 1) % 3)]
for work in dist.batch_isend_irecv(sends + receives if rank else receives + sends): work.wait()
"""
    assert run(sandbox, body).status == "passed"


def test_a_rank_with_another_value_of_what_all_have_fails(sandbox: Sandbox) -> None:
    failure = run(sandbox, "dist.barrier()\nif rank == 1: q = q * (1 + 1e-6)").failure
    assert failure is not None
    assert (failure.kind, failure.oracle) == (FailureKind.METADATA_MISMATCH, "replicas")
    assert [(diff.output, diff.what) for diff in failure.diffs] == [("out", "replicas")]
    assert failure.evidence["rank"] == "rank 1"


def test_the_layer_of_a_failure_of_ranks_is_found_by_running_them_again(sandbox: Sandbox) -> None:
    text = source("if torch.compiler.is_compiling(): q = q + RANK", compiled=True)
    text = f"{MEET}\nRANK = float(rank)\n{text}"
    job = Job(ranks=2, compile=Compile(backend="aot_eager"))
    text = text.replace("torch.compile(attention)", 'torch.compile(attention, backend="aot_eager")')
    failure = sandbox.run(text, job).failure
    assert failure is not None
    assert (failure.kind, failure.layer) == (FailureKind.WRONG_RESULT, "dynamo"), failure


def test_nothing_is_left_of_ranks_however_they_end(sandbox: Sandbox, tmp_path: Path) -> None:
    folder = sandbox._folder
    before = {str(path) for path in folder.rglob("*")}
    programs = Programs(sandbox, tmp_path / "notes.txt", ranks=3)
    for kind in BODIES:
        programs.run(kind)
    assert set(programs.counts) == {
        "passes: passed", "dies: crash", "raises: runtime_error", "leaves: crash", "hangs: hang",
    }  # fmt: skip
    assert len(programs.notes.read_text().splitlines()) == 3 * len(BODIES)
    assert not any(left(programs, folder, before).values())


def test_a_rank_that_never_ends_is_missed(sandbox: Sandbox) -> None:
    body = "import threading\nif rank == 1: threading.Event().wait()"
    failure = run(sandbox, body, ranks=2, check=3.0).failure
    assert failure is not None
    assert (failure.kind, failure.phase) == (FailureKind.HANG, Phase.CHECK)
    assert "rank 1" in failure.evidence["ranks"]


SCRIPT = """
import os, sys, time
import torch.distributed as dist

dist.init_process_group("gloo")
assert dist.get_world_size() == 2
{body}
dist.barrier()
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", 0),
        ("if dist.get_rank() == 1: sys.exit('rank 1 says no')", 1),
        ("if dist.get_rank() == 1: os.abort()", -6),
        ("if dist.get_rank() == 1: time.sleep(600)", None),
    ],
    ids=["passes", "fails", "crashes", "hangs"],
)
def test_a_script_of_several_ranks_is_run_by_as_many(
    tmp_path: Path, body: str, expected: int | None
) -> None:
    seconds = 12.0 if expected is None else 120.0
    task = ReproTask(
        SCRIPT.format(body=body), sys.executable, str(tmp_path), 1, timeout_s=seconds, processes=2
    )
    [run] = run_repro(task)
    assert run.status == expected, run.stderr
    assert expected != 1 or "rank 1 says no" in run.stderr
    left = [p.pid for p in psutil.process_iter() if any(str(tmp_path) in a for a in cmdline(p))]
    assert left == []


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []

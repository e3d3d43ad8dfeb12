"""The incidents of docs/SEEDS.md: each shows, with its kind, in a program of ours."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.corpus.signature import signature
from attnfuzz.fuzz.campaign.config import load_config
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Function, Handwritten, NpuFusionAttention, Sdpa
from attnfuzz.generators.model.masks import Causal, Documents
from attnfuzz.generators.model.outcome import Layer
from attnfuzz.generators.model.program import Call, Compile, Input, Mesh, Program, Shape, Training
from attnfuzz.generators.strategies.swarm import PROFILES
from benchmarks.seeds import HERE, IN_SYSTEMS, INCIDENTS, Incident
from tests.support.kernels_toolchain import NO_TOOLCHAIN, TOOLCHAIN
from tests.support.preload import preload

EAGER = Compile(backend="eager")
CACHED = Program(
    kernel=Flex(block_mask=BlockMaskSpec(made="cached")), mask=Documents(), compile=EAGER
)
BROKEN = Compile(backend="eager", fullgraph=False)
LENGTHS = tuple(Call(batch=1, q_len=16 + i, kv_len=16 + i) for i in range(1, 11))
MIXING = Program(
    kernel=Sdpa(backend="math", mask_form="is_causal"),
    mask=Causal(),
    shape=Shape(q_heads=2, kv_heads=2),
    mesh=Mesh(world_size=2, q="heads", k="heads", v="heads"),
)
GANG = Program(
    kernel=Handwritten(),
    mesh=Mesh(world_size=4, ranks="processes", q="length", k="length", v="length"),
    compile=Compile(backend="aot_eager"),
)
BF16 = Input(dtype="bfloat16")
WIDE = Program(
    kernel=Flex(),
    q=BF16,
    k=BF16,
    v=BF16,
    compile=Compile(),
    training=Training(),
    shape=Shape(q_len=128, kv_len=128, head_dim=256),
)
SMALL_CARD = "virtual-sm86"
SHOWS = {
    "1-flex-compile": (CACHED, Layer.DYNAMO),
    "1-flex-graph-break": (replace(CACHED, compile=BROKEN), Layer.DYNAMO),
    "2-opaque-builtin": (Program(compile=BROKEN), Layer.DYNAMO),
    "2-fake-strides": (
        Program(compile=Compile(), shape=Shape(q_heads=2, kv_heads=2)), Layer.INDUCTOR,
    ),
    "2-recompile-limit": (Program(compile=BROKEN, calls=LENGTHS), Layer.DYNAMO),
    "3-no-valid-choices": (
        Program(kernel=Flex(), compile=Compile(), shape=Shape(head_dim=128)), Layer.INDUCTOR,
    ),
    "3-shared-memory": (WIDE, Layer.INDUCTOR),
    "4-type-mixing": (MIXING, Layer.EAGER),
    "4-npu-type-mixing": (
        replace(MIXING, kernel=NpuFusionAttention(sparse_mode=2), mask=None), Layer.EAGER,
    ),
    "5-hang": (GANG, Layer.AOT_EAGER),
}  # fmt: skip


@pytest.fixture(scope="module")
def on_card() -> Iterator[Executor]:
    """Runs programs on `SMALL_CARD`."""
    with Scratch.create() as scratch:
        config = WorkerConfig(
            scratch=str(scratch.root), toolchain=str(TOOLCHAIN), targets=(SMALL_CARD,)
        )
        with Executor(config) as executor:
            yield executor


def test_every_incident_is_tried() -> None:
    assert set(SHOWS) == {incident.name for incident in INCIDENTS}
    assert load_config(HERE / "campaign.yaml").minutes * 2 == 15
    assert load_config(HERE / "virtual.yaml", toolchain=sys.executable).minutes * 2 == 20
    for incident in IN_SYSTEMS:
        assert load_config(HERE / incident.config, toolchain=sys.executable).minutes * 2 == 15
        assert incident.system in profile_kernels(incident.config)


def profile_kernels(config: str) -> set[str]:
    """The kernels that programs of a configuration are drawn around."""
    profiles = load_config(HERE / config, toolchain=sys.executable).profiles
    return {kernel for name in profiles for kernel, _ in PROFILES[name].kernels}


@pytest.mark.slow
@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.name)
def test_an_incident_shows_with_its_kind_and_layer(
    incident: Incident, request: pytest.FixtureRequest
) -> None:
    program, layer = SHOWS[incident.name]
    if incident.function is not None:
        program = replace(program, kernel=Function(target=incident.function.target))
    if incident.config == "virtual.yaml":
        if not TOOLCHAIN.exists():
            pytest.skip(NO_TOOLCHAIN)
        executor: Executor = request.getfixturevalue("on_card")
    else:
        executor = request.getfixturevalue("executor")
    preload(executor, *incident.files)
    hasty = Deadlines(compile=10) if incident.kind == "hang" else None
    [outcome] = executor.run_programs([program], RunSettings(deadlines=hasty, confirm_hang=False))
    failure = outcome.failure
    assert failure is not None, outcome
    assert failure.kind.value in incident.kinds and failure.layer is layer
    if incident.kind == "hang":
        assert "went another way: rank 3" in failure.evidence["ranks"]
    title = signature(failure, program).title
    assert re.search(incident.title, title), title


@pytest.mark.slow
def test_a_program_that_mixes_by_itself_is_refused(executor: Executor) -> None:
    """The same mixture, but the mask that torch meets was left plain by the program."""
    program = replace(MIXING, kernel=Sdpa(backend="math"), mesh=Mesh(world_size=2, plain_mask=True))
    [outcome] = executor.run_programs([program])
    assert outcome.rejection == "the program itself leaves its mask a plain tensor"

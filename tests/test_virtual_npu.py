"""The virtual NPU: the real torch_npu over a stand-in for CANN, on fake tensors."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.targets.stand_in_library import ShimError
from attnfuzz.actors.targets.virtual_npu import cann
from attnfuzz.actors.targets.virtual_npu.npus import NPUS
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.generators.kernels.specs import Flex, NpuFusionAttention, Sdpa
from attnfuzz.generators.model.masks import Causal
from attnfuzz.generators.model.outcome import FailureKind, Outcome
from attnfuzz.generators.model.program import (
    Compile,
    Input,
    Mesh,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.strategies.shards import shard_programs
from tests.support.kernels_toolchain import TOOLCHAIN, needs_kernels

ROOT = Path(__file__).resolve().parent.parent
TARGET = "virtual-ascend910b"
HALF = Input(dtype="float16")
TRACED = Compile(backend="aot_eager")
SHAPE = Shape(batch=2, q_heads=8, kv_heads=4, q_len=128, kv_len=128, head_dim=64)


def npu(**spec: Any) -> Program:
    kernel = NpuFusionAttention(**spec)
    return Program(kernel=kernel, shape=SHAPE, q=HALF, k=HALF, v=HALF, training=Training())


@pytest.fixture(scope="module")
def on_npu() -> Iterator[Callable[..., Outcome]]:
    with Scratch.create() as scratch:
        config = WorkerConfig(
            scratch=str(scratch.root), toolchain=str(TOOLCHAIN), targets=("cpu", TARGET)
        )
        with Executor(config) as executor:
            yield lambda program, target=TARGET: executor.run_programs(
                [program], RunSettings(target=target)
            )[0]


def test_what_it_must_define_is_read_from_the_installed_library(tmp_path: Path) -> None:
    torch, torch_npu = tmp_path / "torch", tmp_path / "torch_npu"
    for package in (torch, torch_npu):
        (package / "lib").mkdir(parents=True)
    text = (
        'extern "C" { int aclrtOther(); void *malloc(unsigned long); int c10_function(); '
        'int HcclOwn() { return 1; } const char *name = "aclrtLookedUp"; const char *op = "aclnnX";'
        "int call() { return aclrtOther() + c10_function() + (malloc(1) != 0); } }"
    )
    compile_to(torch_npu / "lib" / "libtorch_npu.so", text)
    compile_to(torch / "lib" / "libc10.so", 'extern "C" int c10_function() { return 0; }')
    assert cann.functions(torch, torch_npu) == {"aclrtOther", "aclrtLookedUp"}


def compile_to(library: Path, text: str) -> None:
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)],
        input=text, text=True, check=True,
    )  # fmt: skip


def test_a_package_without_its_library_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ShimError, match=r"libtorch_npu\.so is not there"):
        cann.functions(tmp_path, tmp_path)


def test_a_machine_with_an_npu_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cann, "DRIVER", tmp_path)
    with pytest.raises(ShimError, match="has an NPU, which is not to be faked"):
        cann.load(tmp_path, NPUS[TARGET])


def test_programs_are_written_for_it() -> None:
    meshed = replace(npu(), mesh=Mesh(world_size=8, ranks="processes", q="heads"), compile=TRACED)
    text = source(meshed, "npu")
    assert 'init_device_mesh("npu", (8,))' in text and "FakeStore()" in text
    assert source(replace(Program(kernel=Sdpa()), autocast="float16"), "npu").count("torch_npu")
    from attnfuzz.generators.model.outcome import Failure, Phase, Raised

    raised = Raised(type="RuntimeError", message="no")
    failure = Failure(kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, raised=raised)
    script = repro(meshed, failure, device="npu")
    assert (
        'init_process_group("npu:fake", rank=0, world_size=8' in script and "torchrun" not in script
    )
    assert 'set_default_device("npu")' in script and "import torch_npu" in script


def test_it_is_drawn_what_it_can_take() -> None:
    target = TARGETS[TARGET]
    weights = {"npu_fusion_attention": 1.0, "ranks": 1.0, "inductor-flex": 1.0, "eager": 1.0}
    assert target.profiles(weights) == {"npu_fusion_attention": 1.0, "ranks": 1.0}
    assert target.profiles({"npu-parallel": 1.0, "parallel": 1.0}) == {"npu-parallel": 1.0}
    drawn = [
        program
        for index in range(12)
        for program in shard_programs(3, index, 10, {"npu_fusion_attention": 1}, (), target.place)
    ]
    assert not [sentence for program in drawn if (sentence := target.unfit(program))]
    compiled = [p.mesh for p in drawn if p.mesh is not None and p.compile is not None]
    assert any(mesh.world_size > 1 for mesh in compiled)


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (Program(kernel=Flex()), "kernel.kind: virtual-ascend910b takes one of npu_fusion_att"),
        (replace(npu(), compile=Compile()), "compile.backend: virtual-ascend910b takes one of e"),
    ],
)
def test_what_it_cannot_take_is_one_sentence(program: Program, sentence: str) -> None:
    assert str(TARGETS[TARGET].unfit(program)).startswith(sentence)


@pytest.mark.slow
def test_a_toolchain_without_torch_npu_is_one_sentence(scratch: Path) -> None:
    config = WorkerConfig(scratch=str(scratch), targets=(TARGET,))
    with pytest.raises(SandboxError, match="torch_npu is not installed"):
        Executor(config)


@needs_kernels
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH", "TND"])
def test_every_layout_runs_and_compiles_forward_and_backward(
    layout: str, on_npu: Callable[..., Outcome]
) -> None:
    for compiled in (None, TRACED):
        outcome = on_npu(replace(npu(input_layout=layout, sparse_mode=3), compile=compiled))
        assert outcome.status == "passed", outcome
        assert "virtual: tensors are fake" in outcome.skipped["numbers"]


@needs_kernels
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 32])
@pytest.mark.parametrize("placement", ["heads", "length", "batch"])
def test_torch_npu_has_a_sharding_rule_for_its_operator(
    placement: Any, ranks: int, on_npu: Callable[..., Outcome]
) -> None:
    mesh = Mesh(world_size=ranks, ranks="processes", q=placement, k=placement, v=placement)
    for compiled in (None, TRACED):
        outcome = on_npu(replace(npu(sparse_mode=2), mesh=mesh, compile=compiled))
        assert outcome.status == "passed", outcome


@needs_kernels
@pytest.mark.slow
def test_sdpa_and_autograd_functions_run_on_it_too(on_npu: Callable[..., Outcome]) -> None:
    shape = replace(SHAPE, kv_heads=SHAPE.q_heads)
    sdpa = replace(npu(), kernel=Sdpa(mask_form="is_causal"), mask=Causal(), shape=shape)
    for style in ("direct", "autograd_function"):
        program = replace(sdpa, surround=Surround(integration=style), compile=TRACED)
        assert on_npu(program).status == "passed"


WRONG = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from attnfuzz.actors.targets.virtual_npu import cann
from attnfuzz.actors.targets.virtual_npu.npus import NPUS
cann.load(Path({cache!r}), NPUS["virtual-ascend910b"])
import torch, torch_npu
with torch._subclasses.fake_tensor.FakeTensorMode():
    q = torch.empty(2, 8, 128, 64, device="npu", dtype=torch.float16)
    for arguments in ((q, q, q), (q, q, q, 8.5, "BNSD"), (q, q, q, 8, "BNSD", None, None, 3)):
        try:
            torch_npu.npu_fusion_attention(*arguments)
        except Exception as error:
            print(" ".join(str(error).split()))
    print(torch_npu.npu_fusion_attention(q, q, q, 8, "no layout")[0].shape)
"""


@needs_kernels
@pytest.mark.slow
def test_wrong_arguments_are_told_by_the_real_schema(tmp_path: Path) -> None:
    ran = subprocess.run(
        [str(TOOLCHAIN), "-c", WRONG.format(root=str(ROOT), cache=str(tmp_path))],
        capture_output=True, text=True, check=True,
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )  # fmt: skip
    missing, head_num, mask, unknown = ran.stdout.strip().splitlines()[-4:]
    assert "npu_fusion_attention() is missing value for argument 'head_num'" in missing
    assert "Expected a value of type 'int' for argument 'head_num' but" in head_num
    assert "Expected a value of type 'Optional[Tensor]' for argument 'atten_mask'" in mask
    # Its meta function does not look at what layouts there are; the kernel's host code does.
    assert unknown == "torch.Size([2, 8, 128, 64])"


@needs_kernels
@pytest.mark.slow
def test_a_cpu_program_is_what_it_was_beside_an_npu(on_npu: Callable[..., Outcome]) -> None:
    program = Program(kernel=Sdpa(), compile=TRACED)
    before = on_npu(program, "cpu")
    assert on_npu(npu()).status == "passed"
    after = on_npu(program, "cpu")
    assert before.status == after.status == "passed"
    assert before.features == after.features and before.skipped == after.skipped

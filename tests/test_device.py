"""Targets that are devices, without one: how arguments reach it, how workers are pinned to theirs,
what is said where there is none. On a GPU, test_cuda goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from attnfuzz.actors.sandbox.fork_server import ForkServer
from attnfuzz.actors.sandbox.job import Deadlines
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.sandbox.zygote import is_idle
from attnfuzz.actors.targets.accelerator.child import AcceleratorChild, devices_counted, first_use
from attnfuzz.actors.targets.accelerator.devices import DEVICES, Device
from attnfuzz.actors.targets.child_registry import CHILDREN
from attnfuzz.actors.targets.gpu_assignment import not_pinned
from attnfuzz.actors.targets.registry import TARGETS
from attnfuzz.actors.worker import WorkerConfig
from attnfuzz.fuzz.pool import opened
from attnfuzz.generators.kernels.specs import (
    FlashAttn,
    Flex,
    NpuFusionAttention,
    Sdpa,
    TransformerLayer,
)
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Phase, Raised
from attnfuzz.generators.model.program import (
    Compile,
    Input,
    Layout,
    Program,
    Shape,
    Surround,
    Training,
)  # fmt: skip
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from tests.support.child_programs import REFERENCE, SDPA, TRAINING, Told, compile_settings, tell
from tests.support.child_programs import source as child_source
from tests.support.gpu import gpu_is_there

LEAVES = "return tuple(torch.randn(2, 2, 8, 16, requires_grad=True) for _ in range(3))"


def test_a_worker_sees_the_devices_that_ray_gave_it_and_no_others() -> None:
    assert not_pinned(["cpu"], {}, {}) is None
    assert not_pinned(["cuda"], {"GPU": ["1"]}, {"CUDA_VISIBLE_DEVICES": "1"}) is None
    assert not_pinned(["cuda"], {"GPU": ["1"]}, {"HIP_VISIBLE_DEVICES": "1"}) is None
    assert not_pinned(["xpu"], {"GPU": ["2"]}, {"ZE_AFFINITY_MASK": "2"}) is None
    assert not_pinned(["xpu"], {"GPU": ["2"]}, {"ONEAPI_DEVICE_SELECTOR": "level_zero:2"}) is None
    assert not_pinned(["npu"], {"NPU": ["0"]}, {"ASCEND_RT_VISIBLE_DEVICES": "0"}) is None
    assert not_pinned(["cpu", "cuda"], {"GPU": []}, {}) == (
        "target cuda: Ray has given this worker no GPU"
    )
    assert not_pinned(["cuda"], {"GPU": ["1"]}, {"CUDA_VISIBLE_DEVICES": "0,1"}) == (
        "target cuda: expected to see GPU 1, got CUDA_VISIBLE_DEVICES=0,1"
    )
    assert not_pinned(["npu"], {"NPU": ["3"]}, {}) == (
        "target npu: expected to see NPU 3, got no variable set"
    )


def test_devices_take_what_their_makers_have_kernels_for() -> None:
    npu_program = Program(kernel=NpuFusionAttention())
    assert TARGETS["npu"].unfit(npu_program) is None
    assert TARGETS["cuda"].unfit(npu_program) == (
        "kernel.kind: npu_fusion_attention runs on cuda over a stand-in only"
    )
    assert "npu takes one of" in str(TARGETS["npu"].unfit(Program(kernel=Flex())))
    assert TARGETS["cuda"].unfit(Program(kernel=Flex())) is None
    weights = {"mixed": 1.0, "ranks": 1.0, "npu_fusion_attention": 1.0, "inductor-sdpa": 1.0}
    assert set(TARGETS["cuda"].profiles(weights)) == {"mixed", "inductor-sdpa"}
    assert set(TARGETS["npu"].profiles(weights)) == {"npu_fusion_attention", "inductor-sdpa"}


def test_gradients_on_devices_are_sums_in_no_fixed_order() -> None:
    trained = Program(kernel=Sdpa(), training=Training())
    by_transform = replace(trained, training=None, transform="grad")

    def deterministic(target: str, program: Program) -> bool:
        return TARGETS[target].job(program, (), Deadlines()).deterministic

    assert not deterministic("cuda", trained) and not deterministic("cuda", by_transform)
    assert deterministic("cuda", replace(trained, training=None))
    assert deterministic("cpu", trained)


def test_a_thread_of_the_driver_is_idle_where_no_card_is_visible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert is_idle("cuda00001800007") and not is_idle("python3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert not is_idle("cuda00001800007")


def test_workers_of_a_command_share_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[WorkerConfig, int]] = []

    def open_pool(config: WorkerConfig, workers: int) -> SimpleNamespace:
        asked.append((config, workers))
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(opened, "open_pool", open_pool)
    with opened.pool("python", (), 16, "cuda"):
        pass
    ((config, workers),) = asked
    assert (config.targets, config.per_device, workers) == (("cuda",), 16, 16)


def test_a_compiled_checkpoint_may_draw_its_seeds() -> None:
    """torch's `initialize_rng_states`: on CUDA, from the generator of the CPU."""
    import torch

    from attnfuzz.actors.oracles.purity import Snapshot

    checkpointed = Program(kernel=Sdpa(), surround=Surround(checkpoint="full"), compile=Compile())
    for target, program, draws in (
        ("cuda", checkpointed, True),
        ("cpu", checkpointed, False),
        ("cuda", replace(checkpointed, surround=Surround()), False),
    ):
        job = TARGETS[target].job(program, (), Deadlines())
        assert job.oracles["draws_seeds"] == draws
    strict, lenient = Snapshot((), []), Snapshot((), [])
    lenient.forget("rng_state")
    torch.rand(1)
    assert [one["what"] for one in strict.differences(0)] == ["rng_state"]
    assert lenient.differences(0) == []


def test_a_promise_that_the_mask_need_not_keep_is_no_program_of_a_device() -> None:
    promised = Program(kernel=Flex(kernel_options={"ROWS_GUARANTEED_SAFE": True}))
    assert TARGETS["cpu"].unfit(promised) is None
    for target in ("cuda", "interpreted-sm90"):
        assert "ROWS_GUARANTEED_SAFE: a promise" in str(TARGETS[target].unfit(promised))


def test_what_is_not_for_a_device_does_not_see_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    environ = partial(ForkServer._environ, cast(ForkServer, SimpleNamespace(marker="m")), tmp_path)
    assert environ("cpu")["CUDA_VISIBLE_DEVICES"] == ""
    assert environ("cuda")["CUDA_VISIBLE_DEVICES"] == "1"
    assert "NVIDIA_TF32_OVERRIDE" not in environ("cuda")


def test_the_script_of_what_a_kernel_does_waits_for_it() -> None:
    failure = Failure(
        kind=FailureKind.ILLEGAL_ACCESS,
        phase=Phase.FORWARD,
        raised=Raised(type="torch.AcceleratorError", message="an illegal memory access"),
    )
    assert repro(Program(), failure, device="cuda").endswith("torch.cuda.synchronize()\n")
    assert "synchronize" not in repro(Program(), failure)


def test_a_script_for_a_device_draws_the_numbers_that_failed() -> None:
    diff = Diff(output="dq", what="value", expected="1", actual="2", error=1.0, budget=0.1)
    wrong = Failure(kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, diffs=(diff,))
    transposed = Input(layout=Layout(order=(0, 2, 1, 3)))
    program = Program(v=transposed, training=Training())
    script = repro(program, wrong, device="cuda")
    assert 'q = torch.randn(1, 1, 16, 16, device="cpu").to("cuda").requires_grad_()' in script
    assert 'device="cpu").to("cuda").transpose(1, 2)' in script
    assert "generator = torch.Generator().manual_seed(1)" in script
    assert 'generator=generator, device="cpu").to(out)' in script
    broken = replace(wrong, kind=FailureKind.METADATA_MISMATCH)
    assert "cpu" not in repro(program, broken, device="cuda")


def test_the_script_of_a_module_on_a_device_leaves_it_its_fast_path() -> None:
    diff = Diff(output="out", what="value", expected="1", actual="2", error=1.0, budget=0.1)
    wrong = Failure(kind=FailureKind.WRONG_RESULT, phase=Phase.CHECK, diffs=(diff,))
    layer = Program(kernel=TransformerLayer(), shape=Shape(q_heads=2, kv_heads=2))
    lines = repro(layer, wrong, device="cuda").splitlines()
    (call,) = [place for place, line in enumerate(lines) if line.startswith("out = attention(")]
    assert lines[call - 1] == "torch.set_default_device(None)"
    assert lines[call + 1] == 'torch.set_default_device("cuda")'
    for script in (repro(layer, wrong), repro(Program(kernel=Sdpa()), wrong, device="cuda")):
        assert "set_default_device(None)" not in script


def test_flash_attn_on_a_gpu_is_as_installed() -> None:
    program = Program(kernel=FlashAttn(), q=replace(Program().q, dtype="float16"))
    assert "TRITON_INTERPRET" in source(program)
    on_gpu = source(program, "cuda")
    assert "TRITON_INTERPRET" not in on_gpu and ".register_kernel" not in on_gpu


@pytest.mark.slow
def test_arguments_keep_strides_and_shared_memory_and_captures() -> None:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    from attnfuzz.actors.child.to_device import ToDevice

    buffer = torch.arange(24.0).reshape(2, 3, 4)
    q, k = buffer[..., 1:3].transpose(0, 1), buffer[:, 1:]
    k.requires_grad_()
    table = torch.tensor([1, 0])
    mask = create_block_mask(lambda b, h, i, j: table[i % 2] <= j, None, None, 8, 8, device="cpu")
    copied = ToDevice("cpu")
    q2, k2, mask2 = copied(q), copied(k), copied(mask)
    for before, after in ((q, q2), (k, k2)):
        assert torch.equal(before, after) and before.stride() == after.stride()
        assert before.storage_offset() == after.storage_offset()
        assert before.requires_grad == after.requires_grad
        assert before.data_ptr() != after.data_ptr()
    assert q2.untyped_storage().data_ptr() == k2.untyped_storage().data_ptr()
    (cell,) = mask2.mask_mod.__closure__
    assert torch.equal(cell.cell_contents, table) and cell.cell_contents is not table
    assert torch.equal(mask2.kv_indices, mask.kv_indices)
    assert mask2.kv_indices.data_ptr() != mask.kv_indices.data_ptr()


@pytest.mark.slow
def test_to_count_devices_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    done = threading.Event()

    def as_nvml_does() -> int:
        threading.Thread(target=done.wait, daemon=True).start()
        return 3

    monkeypatch.setattr(torch.cuda, "device_count", as_nvml_does)
    before = threading.active_count()
    with devices_counted():
        assert torch.cuda.device_count() == 3
    assert threading.active_count() == before
    assert torch.cuda.device_count() == 3 and threading.active_count() == before + 1
    done.set()


@pytest.fixture
def cpu_as_device(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    """The child of a device, which is the CPU: all of it but the device."""
    if gpu_is_there():
        pytest.skip("a forked process of a test sees the card that is there")
    cpu = Device(label="CPU", resource="CPU", visible=())
    monkeypatch.setitem(CHILDREN, "cpu", AcceleratorChild("cpu", cpu))

    def run(text: str, **job: Any) -> Told:
        return tell(text, {"target": "cpu", "device_memory_mb": 512, "dirty_memory": True, **job})

    return run


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_child_of_a_device_runs_and_judges_programs(
    cpu_as_device: Callable[..., Told], backend: str
) -> None:
    text = child_source(inputs=LEAVES, run=TRAINING, compile_arguments=f", backend='{backend}'")
    told = cpu_as_device(text, compile=compile_settings(backend))
    assert told.kind == "passed"
    assert told.phases[:4] == ["build", "reference", "eager", "compile"]


@pytest.mark.slow
def test_the_child_of_a_device_finds_wrong_numbers_and_writes_to_arguments(
    cpu_as_device: Callable[..., Told],
) -> None:
    wrong = cpu_as_device(child_source(SDPA + " * 1.001")).failure
    assert (wrong["kind"], wrong["layer"]) == ("wrong_result", "eager")
    written = cpu_as_device(child_source("q.mul_(2.0)\n" + REFERENCE)).failure
    assert written["kind"] == "mutation"


@pytest.mark.slow
def test_an_illegal_access_is_its_own_kind() -> None:
    from attnfuzz.actors.child.failure_kinds import kind_of

    for words in (
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: device-side assert triggered",
        "HIP error: unspecified launch failure",
        "CUDA error: an illegal instruction was encountered",
        "CUDA error: operation not supported on global/shared address space",
    ):
        assert kind_of(RuntimeError(words), compiling=False) == "illegal_access"
    words = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    assert kind_of(RuntimeError(words), compiling=False) == "out_of_memory"


@pytest.mark.slow
def test_workers_for_gpus_each_see_one_of_their_own() -> None:
    import ray
    import torch

    from attnfuzz.fuzz.pool.ray_pool import RayPool

    if torch.cuda.device_count() == 1:
        pytest.skip("Ray cannot be told of two GPUs where there is one")
    with Scratch.create() as scratch:
        config = WorkerConfig(scratch=str(scratch.root), targets=("cpu", "cuda"))
        pool = RayPool(config, 2, devices={"GPU": 2})
        try:
            seen = ray.get([slot.actor.about.remote() for slot in pool._slots])
        finally:
            pool.close()
    assert sorted(one.devices["CUDA_VISIBLE_DEVICES"] for one in seen) == ["0", "1"]


@pytest.mark.slow
def test_a_device_that_no_program_can_start_is_told_before_any_does() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("a CUDA device is there")
    with pytest.raises(RuntimeError, match="a forked process cannot use a cuda device: .*CUDA"):
        first_use("cuda", DEVICES["cuda"])


@pytest.mark.slow
def test_more_workers_than_devices_is_one_sentence() -> None:
    from attnfuzz.fuzz.pool.ray_pool import RayPool

    with Scratch.create() as scratch:
        config = WorkerConfig(scratch=str(scratch.root), targets=("npu",), per_device=2)
        with pytest.raises(SandboxError, match="workers: 3 need 2 NPU .* Ray finds 1"):
            RayPool(config, 3, devices={"NPU": 1})


@pytest.mark.slow
def test_a_device_that_is_not_there_is_said(
    attnfuzz: Callable[..., CompletedProcess[str]],
) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("a CUDA device is there")
    ran = attnfuzz("launch", "configs/cuda.yaml", "--dir", "/nonexistent/x", "--minutes", "1")
    assert ran.returncode == 2
    assert "targets.cuda: torch" in ran.stderr

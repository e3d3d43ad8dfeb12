"""Virtual cards: what their limits are, how programs are written for them, and that Inductor
compiles for them to cubins whose use of the card is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from subprocess import CompletedProcess
from typing import Literal

import pytest

from attnfuzz.actors.runs import RunSettings
from attnfuzz.actors.sandbox.sandbox import SandboxError
from attnfuzz.actors.sandbox.scratch import Scratch
from attnfuzz.actors.targets.registry import TARGETS, target_for
from attnfuzz.actors.targets.stand_in_library import ShimError, kept, without_cuda
from attnfuzz.actors.targets.virtual_card.binaries import Usage, of_code_object
from attnfuzz.actors.targets.virtual_card.cards import CARDS
from attnfuzz.actors.worker import Executor, WorkerConfig
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.graph.steps.arithmetic import Scale
from attnfuzz.generators.kernels.graph.steps.attention import Einsum, Product, Softmax
from attnfuzz.generators.kernels.graph.steps.union import AnyStep
from attnfuzz.generators.kernels.specs import Flex, Graph, Handwritten, Sdpa
from attnfuzz.generators.model.codec import dump_program
from attnfuzz.generators.model.indices import Index, IntLookup, Table
from attnfuzz.generators.model.masks import Compare
from attnfuzz.generators.model.outcome import Failure, FailureKind, Layer, Outcome, Phase, Raised
from attnfuzz.generators.model.program import (
    Compile,
    Input,
    Mesh,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.scores import FloatLookup
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.strategies.shards import stream
from attnfuzz.generators.strategies.swarm import profile_for
from tests.support.flex_program import BF16, trained_flex
from tests.support.kernels_toolchain import TOOLCHAIN, needs_kernels

ROOT = Path(__file__).resolve().parent.parent
FLEX = trained_flex(Shape(batch=2, q_heads=4, kv_heads=4, q_len=1024, kv_len=1024, head_dim=64))
SMALL = replace(FLEX, shape=Shape(batch=1, q_len=128, kv_len=128, head_dim=64), training=None)


@pytest.fixture(scope="module")
def on_card() -> Iterator[Callable[..., Outcome]]:
    """Runs a program on a target; one worker serves them all."""
    with Scratch.create() as scratch:
        config = WorkerConfig(
            scratch=str(scratch.root), toolchain=str(TOOLCHAIN), targets=("virtual-sm90", *TARGETS)
        )
        with Executor(config) as executor:
            yield lambda program, target="virtual-sm90": executor.run_programs(
                [program], RunSettings(target=target)
            )[0]


def used(outcome: Outcome) -> list[tuple[str, int]]:
    """The template kernels and their shared memory."""
    return [(k.name, k.shared_bytes) for k in outcome.kernels if "_tem_" in k.name]


def test_cards_allow_what_the_programming_guide_says() -> None:
    allowed = {name: card.shared_memory_per_block_optin for name, card in CARDS.items()}
    assert allowed == {
        "virtual-sm80": 166_912, "virtual-sm86": 101_376, "virtual-sm89": 101_376,
        "virtual-sm90": 232_448, "virtual-sm100": 232_448, "virtual-sm120": 101_376,
        "virtual-gfx942": 65_536, "virtual-gfx950": 163_840,
    }  # fmt: skip
    arches = [card.arch for card in CARDS.values()]
    assert arches == [80, 86, 89, 90, 100, 120, "gfx942", "gfx950"]


@pytest.mark.parametrize(("registers", "threads"), [(32, 1024), (64, 1024), (128, 512), (255, 256)])
def test_a_block_has_as_many_threads_as_its_registers_allow(registers: int, threads: int) -> None:
    assert CARDS["virtual-sm90"].threads_with(registers) == threads


def test_what_attention_makes_is_on_the_card_and_inputs_are_not() -> None:
    inside = replace(SMALL, kernel=Flex(block_mask=BlockMaskSpec(made="inside")))
    text = source(replace(inside, autocast="bfloat16"), "cuda")
    assert 'torch.autocast("cuda"' in text
    assert text.count('device="cuda"') == 1
    outside = source(SMALL, "cuda")
    assert 'device="cpu"' in outside and "cuda" not in outside
    assert source(SMALL, "cpu") == source(SMALL)


def test_a_script_for_a_card_makes_everything_there() -> None:
    raised = Raised(type="RuntimeError", message="no")
    failure = Failure(kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, raised=raised)
    program = replace(SMALL, training=Training(grad_layout="transposed"))
    text = repro(program, failure, device="cuda")
    first, rest = text.split("create_block_mask(", 1)
    assert 'torch.set_default_device("cuda")' in first
    assert 'device="cuda"' in rest and "cpu" not in text
    assert "dout = torch.randn(out.transpose(1, 2).shape, dtype=out.dtype)" in text


def test_a_code_object_says_what_it_takes() -> None:
    told = b"\xab.vgpr_count\xcd\x01\x4f\xbb.private_segment_fixed_size\x10\xab.vgpr_count\x20"
    assert of_code_object(told + b".max_flat_workgroup_size\xcd\x02\x00") == Usage(335, 16, 512)
    assert of_code_object(b"") == Usage(0, 0, 0)


def test_a_campaign_spreads_its_shards_over_targets() -> None:
    weights = {"cpu": 1.0, "virtual-sm86": 2.0, "virtual-sm90": 1.0}
    drawn = [target_for(5, index, weights) for index in range(400)]
    assert [drawn.count(name) for name in weights] == pytest.approx([100, 200, 100], abs=4)
    profiles = {"inductor-flex": 1.0, "inductor-sdpa": 1.0}
    pairs = Counter((t, profile_for(5, index, profiles)) for index, t in enumerate(drawn))
    assert all(40 <= count <= 110 for count in pairs.values()) and len(pairs) == 6


def test_where_a_program_ran_names_its_own_target_only() -> None:
    of_card = TARGETS["virtual-sm90"].environment({"torch": "2.13.0"})
    assert "H100" in of_card["card"] and of_card["target"] == "virtual-sm90"
    assert TARGETS["cpu"].environment(of_card) == {"torch": "2.13.0", "target": "cpu"}


def test_a_card_takes_the_profiles_that_it_can() -> None:
    weights = {"ranks": 1.0, "inductor-flex": 2.0, "flash_attn": 1.0, "mixed": 1.0, "graph": 3.0}
    taken = {"ranks": 1.0, "inductor-flex": 2.0, "mixed": 1.0, "graph": 3.0}
    assert TARGETS["virtual-sm90"].profiles(weights) == taken
    assert TARGETS["interpreted-sm90"].profiles(weights) == {"inductor-flex": 2.0, "graph": 3.0}
    assert TARGETS["cpu"].profiles(weights) == weights


def test_torch_npu_is_not_stood_in_for_beside_a_torch_with_cuda(tmp_path: Path) -> None:
    version = tmp_path / "version.py"
    version.write_text('cuda: Optional[str] = "13.0"\n')
    with pytest.raises(ShimError, match="torch is built with CUDA"):
        without_cuda(tmp_path)
    version.write_text("cuda: Optional[str] = None\n")
    assert without_cuda(tmp_path) == tmp_path


def test_without_a_compiler_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ShimError, match=r"there is no C\+\+ compiler no-such-compiler"):
        kept(tmp_path, "device", (), (), "")


@pytest.mark.slow
def test_a_toolchain_without_triton_is_one_sentence(scratch: Path) -> None:
    config = WorkerConfig(scratch=str(scratch), targets=("virtual-sm90",))
    with pytest.raises(SandboxError, match="No module named 'triton'"):
        Executor(config)


@pytest.mark.parametrize(
    ("target", "program", "sentence"),
    [
        ("virtual-sm70", SMALL, "--target: expected one of cpu, cuda, xpu, npu, virtual-sm80,"),
        ("interpreted-sm90", Program(kernel=Handwritten(), mesh=Mesh()), "mesh: expected none"),
    ],
)
def test_what_a_card_cannot_run_is_one_sentence(
    attnfuzz: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    target: str,
    program: Program,
    sentence: str,
) -> None:
    file = tmp_path / "program.yaml"
    file.write_text(dump_program(program))
    ran = attnfuzz("run", file, "--target", target)
    assert ran.returncode == 2 and sentence in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize(
    ("target", "shared"),
    [
        ("virtual-sm90", (114_688, 82_944)),
        ("virtual-sm86", (49_152, 35_328)),
        ("virtual-gfx942", (24_576, 8_192)),
        ("virtual-gfx950", (16_384, 8_192)),
    ],  # fmt: skip
)
def test_forward_and_backward_of_flex_become_cubins(
    on_card: Callable[..., Outcome], target: str, shared: tuple[int, int]
) -> None:
    outcome = on_card(FLEX, target)
    assert outcome.status == "passed", outcome
    forward, backward = used(outcome)
    assert forward == ("triton_tem_fused_flex_attention_0", shared[0])
    assert backward == ("triton_tem_fused_flex_attention_backward_1", shared[1])
    assert all(kernel.registers > 0 for kernel in outcome.kernels)
    assert "virtual" in outcome.skipped["numbers"]


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_nothing_is_measured_where_tuning_is_asked_for(
    on_card: Callable[..., Outcome], mode: Literal["max-autotune", "reduce-overhead"]
) -> None:
    by_hand = replace(SMALL, kernel=Handwritten(), compile=Compile(mode=mode))
    outcome = on_card(by_hand)
    assert outcome.status == "passed", outcome
    names = {kernel.name for kernel in outcome.kernels}
    assert any(name.startswith("triton_tem") for name in names) == (mode == "max-autotune")


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize(
    ("shape", "dtype", "target", "chosen"),
    [
        (SMALL.shape, "bfloat16", "virtual-sm90", "cudnn"),
        (SMALL.shape, "float32", "virtual-sm90", "efficient"),
        (replace(SMALL.shape, head_dim=30), "bfloat16", "virtual-sm90", "flash"),
        (replace(SMALL.shape, head_dim=30), "float32", "virtual-sm90", None),
        (SMALL.shape, "bfloat16", "virtual-sm86", "flash"),
        (SMALL.shape, "bfloat16", "virtual-gfx942", None),
    ],
)
def test_sdpa_takes_the_kernel_that_it_would_take_on_the_card(
    on_card: Callable[..., Outcome],
    shape: Shape,
    dtype: Literal["bfloat16", "float32"],
    target: str,
    chosen: str | None,
) -> None:
    made = Input(dtype=dtype)
    program = replace(
        SMALL, kernel=Sdpa(mask_form="is_causal"), shape=shape, q=made, k=made, v=made
    )
    outcome = on_card(program, target)
    assert outcome.status == "passed", outcome
    fused = [name for name in outcome.features if "_scaled_dot_product_" in name]
    assert [name.split("_scaled_dot_product_")[1].split("_")[0] for name in fused] == (
        [chosen] if chosen else []
    )
    assert ("fused_sdpa" in outcome.skipped) == (target == "virtual-gfx942")


def test_what_is_drawn_for_a_card_is_as_models_train() -> None:
    def flex(target: str) -> list[Program]:
        place = TARGETS[target].place
        return list(islice(stream(3, profile="inductor-flex", shard_size=6, place=place), 300))

    def trained(drawn: list[Program], head_dim: int) -> int:
        return sum(p.training is not None and p.shape.head_dim >= head_dim for p in drawn)

    assert trained(flex("virtual-sm90"), 128) > 30
    assert trained(flex("virtual-sm90"), 192) > 10
    assert trained(flex("interpreted-sm90"), 128) < 20  # there each multiply-add costs


@pytest.mark.parametrize("profile", ["inductor-flex", "graph"])
@pytest.mark.parametrize("target", ["virtual-sm90", "interpreted-sm90"])
def test_what_is_drawn_for_a_card_is_a_program(target: str, profile: str) -> None:
    drawn = list(
        islice(stream(1, profile=profile, shard_size=10, place=TARGETS[target].place), 300)
    )
    assert [found for p in drawn for found in problems(p)] == []
    place = TARGETS[target].place
    unfit = [TARGETS[target].unfit(p) or "" for p in drawn if p.mesh is None or place.one_rank]
    assert {why.rpartition(".")[0] for why in unfit} <= {"", "kernel.kernel_options"}


def test_what_takes_a_cards_compilers_long_is_seldom_drawn() -> None:
    place = TARGETS["virtual-sm90"].place
    drawn = list(islice(stream(3, profile="inductor-flex", shard_size=6, place=place), 300))
    whole = [p for p in drawn if {p.q.dtype, p.k.dtype, p.v.dtype} == {"float32"}]
    assert 0 < sum(p.autocast is None for p in whole) < 15
    assert all(p.shape.head_dim <= 32 for p in drawn if p.training is None)
    assert all(len(p.calls) <= 3 for p in drawn)


def test_what_links_with_cuda_is_no_program_of_a_card_that_is_not_there() -> None:
    linked = replace(SMALL, compile=Compile(options={"cpp_wrapper": True}))
    assert "cpp_wrapper: virtual-sm90 has no lib" in str(TARGETS["virtual-sm90"].unfit(linked))
    assert TARGETS["cuda"].unfit(linked) is None and TARGETS["cpu"].unfit(linked) is None
    place = TARGETS["virtual-sm90"].place
    drawn = islice(stream(3, profile="inductor-handwritten", shard_size=20, place=place), 300)
    options = {name for program in drawn if program.compile for name in program.compile.options}
    assert len(options) > 5 and "cpp_wrapper" not in options


@pytest.mark.slow
@needs_kernels
def test_tiles_that_fit_one_card_do_not_fit_a_smaller_one(
    on_card: Callable[..., Outcome],
) -> None:
    tiles: dict[str, bool | int | str] = {"BLOCK_M": 128, "BLOCK_N": 64, "num_stages": 3}
    big = replace(
        SMALL,
        shape=replace(SMALL.shape, q_len=512, kv_len=512, head_dim=256),
        kernel=Flex(block_mask=BlockMaskSpec(), kernel_options=tiles),
    )
    assert on_card(big, "virtual-sm90").status == "passed"
    small = on_card(big, "virtual-sm86")
    assert small.status == "rejected" and small.rejection is not None
    assert "kernel_options ask for more shared memory" in small.rejection


@pytest.mark.slow
@needs_kernels
def test_what_a_program_makes_and_captures_goes_along(on_card: Callable[..., Outcome]) -> None:
    inside = replace(SMALL, kernel=Flex(block_mask=BlockMaskSpec(made="inside"), mods="nested"))
    by_hand = Program(
        kernel=Handwritten(product="baddbmm"), q=BF16, k=BF16, v=BF16, compile=Compile(),
        surround=Surround(checkpoint="full"), training=Training(),
    )  # fmt: skip
    for program in (inside, by_hand, replace(SMALL, compile=Compile(dynamic=True))):
        outcome = on_card(program)
        assert outcome.status == "passed" and outcome.kernels, outcome


@pytest.mark.slow
@needs_kernels
def test_the_cpu_is_what_it_was_before_a_card(on_card: Callable[..., Outcome]) -> None:
    plain = replace(SMALL, compile=Compile(), training=None, kernel=Handwritten())
    before = on_card(plain, "cpu")
    assert on_card(plain, "virtual-sm90").kernels
    after = on_card(plain, "cpu")
    assert before.status == after.status == "passed"
    assert (before.features, before.kernels) == (after.features, after.kernels)
    assert after.kernels == () and "numbers" not in after.skipped


@pytest.mark.slow
@needs_kernels
def test_what_comes_of_the_cards_not_being_there_is_no_failure(
    on_card: Callable[..., Outcome],
) -> None:
    """An index that is a constant is made on the CPU and moved, which no card does."""
    first = Table(axes=("q_idx",), unit=(0,))
    mask = Compare(op="<", left=Index(axis="q_idx"), right=IntLookup(table=first))
    outcome = on_card(replace(SMALL, mask=mask))
    assert outcome.status == "rejected" and outcome.rejection is not None, outcome
    assert outcome.rejection.startswith("virtual: a constant of the program")
    scaled = Scale(of="k", to="out", form="tensor")
    again = Program(
        kernel=Graph(steps=(scaled,)),
        surround=Surround(checkpoint="full"),
        training=Training(wrt=("k",)),
    )
    outcome = on_card(again)
    assert outcome.status == "rejected" and outcome.rejection is not None, outcome
    assert outcome.rejection.startswith("virtual: it makes a tensor on the card where")
    assert on_card(replace(again, surround=Surround())).status == "passed"


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize("target", ["virtual-sm90", "interpreted-sm90"])
def test_graphs_are_compiled_for_a_card(on_card: Callable[..., Outcome], target: str) -> None:
    steps: tuple[AnyStep, ...] = (
        Scale(of="q", to="query", form="full"),
        Einsum(left="query", right="k", to="scores"),
        Softmax(of="scores", to="probs", dim=3),
        Product(left="probs", right="v", to="out"),
    )
    graph = Program(kernel=Graph(steps=steps), compile=Compile(), training=Training())
    outcome = on_card(graph, target)
    assert outcome.status == "passed", outcome
    assert outcome.kernels or any("interpreted." in feature for feature in outcome.features)


@pytest.mark.slow
@needs_kernels
def test_a_failure_has_its_kind_and_layer(on_card: Callable[..., Outcome]) -> None:
    row = FloatLookup(table=Table(axes=("q_idx",), dtype="float32"))
    failure = on_card(replace(SMALL, score_mod=row)).failure
    assert failure is not None
    assert (failure.kind, failure.layer) == (FailureKind.COMPILE_ERROR, Layer.INDUCTOR)


@pytest.mark.slow
@needs_kernels
def test_nothing_of_a_card_is_left_in_what_runs_on_the_cpu(
    on_card: Callable[..., Outcome], scratch: Path
) -> None:
    assert on_card(SMALL).kernels
    config = WorkerConfig(scratch=str(scratch), toolchain=str(TOOLCHAIN))
    with Executor(config) as executor:
        outcome = executor.run_programs([SMALL])[0]
    assert outcome.status == "passed" and outcome.kernels == ()
    assert "numbers" not in outcome.skipped

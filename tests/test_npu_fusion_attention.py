"""`npu_fusion_attention` as a kernel: its renderings, through the stand-in, mean what they say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from attnfuzz.fuzz.environment import check_packages
from attnfuzz.fuzz.errors import UserError
from attnfuzz.generators.kernels.specs import NpuFusionAttention
from attnfuzz.generators.model import masks
from attnfuzz.generators.model.codec import dump_program, load_program
from attnfuzz.generators.model.program import Call, Mesh, Program, Shape, Surround, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.strategies.shards import generate
from tests.support.rendered import calls_of

STAND_IN = Path(__file__).parent.parent / "configs" / "torch_npu_stand_in.py"
SHAPE = Shape(batch=2, q_heads=4, kv_heads=2, q_len=5, kv_len=7, head_dim=8)
LAYOUTS = ("BNSD", "BSND", "BSH", "SBH", "TND")


def npu(mask: masks.Mask | None = None, **spec: Any) -> Program:
    return Program(kernel=NpuFusionAttention(**spec), shape=SHAPE, mask=mask)


TRAINED = Training(wrt=("q", "k", "v"))
PER_BATCH = masks.And(left=masks.Documents(per_batch=True), right=masks.Causal(offset=7))
PROGRAMS = {
    **{f"plain-{layout}": npu(input_layout=layout) for layout in LAYOUTS},
    **{f"mode-{mode}": npu(sparse_mode=mode, scale=0.3) for mode in (2, 3)},
    "band": npu(sparse_mode=4, pre_tockens=2, next_tockens=1),
    "band-TND": npu(sparse_mode=4, pre_tockens=0, next_tockens=3, input_layout="TND"),
    "mask-SS": npu(masks.Causal(), mask_shape="SS"),
    "mask-11SS": npu(masks.Causal(offset=1), sparse_mode=1, input_layout="BSH"),
    "mask-BNSS": npu(masks.Causal(), mask_shape="BNSS", input_layout="BSND"),
    "calls": replace(
        npu(sparse_mode=3, input_layout="TND"),
        calls=(Call(batch=3, q_len=2, kv_len=4), Call(batch=1, q_len=7, kv_len=7)),
    ),
    "gated": replace(npu(sparse_mode=2, input_layout="SBH"), surround=Surround(epilogue="gated")),
    **{
        f"trained-{layout}": replace(npu(sparse_mode=3, input_layout=layout), training=TRAINED)
        for layout in LAYOUTS
    },
}


@pytest.fixture(scope="module")
def stand_in() -> Iterator[dict]:
    assert "torch_npu" not in sys.modules
    module: dict = {}
    exec(compile(STAND_IN.read_text(), str(STAND_IN), "exec"), module)
    assert sys.modules["torch_npu"].__version__ == "stand-in"
    yield module
    del sys.modules["torch_npu"]
    module["LIBRARY"]._destroy()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_rendering_asks_for_what_its_reference_means(name: str, stand_in: dict) -> None:
    program = PROGRAMS[name]
    assert not problems(program)
    assert load_program(dump_program(program)) == program
    module: dict = {}
    exec(compile(source(program), name, "exec"), module)
    for call in calls_of(module):
        args = module["inputs"](*call)
        expected = module["run"](module["reference"], args)
        for key, actual in module["run"](module["attention"], args).items():
            torch.testing.assert_close(actual, expected[key], rtol=1e-4, atol=1e-5, msg=key)


def test_generated_programs_are_valid_and_use_every_layout_and_mode() -> None:
    programs = generate(5, 300, profile="npu_fusion_attention")
    kernels = [p.kernel for p in programs if isinstance(p.kernel, NpuFusionAttention)]
    assert len(kernels) == 300
    assert not [problem for program in programs for problem in problems(program)]
    assert all(load_program(dump_program(program)) == program for program in programs)
    assert {kernel.input_layout for kernel in kernels} == set(LAYOUTS)
    assert {kernel.sparse_mode for kernel in kernels} == {0, 1, 2, 3, 4}
    assert any(program.mesh for program in programs) and any(p.mask for p in programs)


@pytest.mark.parametrize(
    ("program", "key"),
    [
        (npu(masks.Causal(), sparse_mode=2), "mask"),
        (npu(masks.Causal(), input_layout="TND"), "mask"),
        (npu(sparse_mode=1), "mask"),
        (npu(PER_BATCH), "kernel.mask_shape"),
        (replace(npu(), shape=replace(SHAPE, kv_len=0)), "shape.q_len"),
        (replace(npu(sparse_mode=3), shape=replace(SHAPE, q_len=9)), "shape.q_len"),
        (replace(npu(), transform="vmap"), "transform"),
    ],
)
def test_what_is_not_documented_is_no_program(program: Program, key: str) -> None:
    assert key in [problem.key for problem in problems(program)]


def test_a_mask_that_the_program_leaves_plain_stays_plain() -> None:
    mesh = Mesh(world_size=2, q="heads", k="heads", v="heads", plain_mask=True)
    text = source(replace(npu(sparse_mode=2), mesh=mesh))
    assert "atten_mask = DTensor" not in text and "q = DTensor" in text
    assert "atten_mask = DTensor" in source(
        replace(npu(sparse_mode=2), mesh=replace(mesh, plain_mask=False))
    )


def test_the_stand_in_is_held_against_an_installed_torch_npu(
    tmp_path: Path, stand_in: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "torch_npu" / "lib" / "libtorch_npu.so"
    library.parent.mkdir(parents=True)
    (tmp_path / "torch_npu" / "__init__.py").write_text("")
    monkeypatch.delitem(sys.modules, "torch_npu")
    monkeypatch.syspath_prepend(str(tmp_path))
    library.write_bytes(b"\0".join(stand_in[name].encode() for name in ("FORWARD", "BACKWARD")))
    stand_in["check_schemas"]()
    library.write_bytes(b"npu_fusion_attention(Tensor query) -> Tensor")
    with pytest.raises(ImportError, match="has no operator npu_fusion_attention"):
        stand_in["check_schemas"]()


def test_without_torch_npu_or_its_stand_in_it_is_one_sentence() -> None:
    with pytest.raises(UserError, match="needs the package torch_npu"):
        check_packages(["npu_fusion_attention"], {}, "profiles.npu_fusion_attention")
    check_packages(["npu_fusion_attention"], {}, "profiles.npu_fusion_attention", [STAND_IN])

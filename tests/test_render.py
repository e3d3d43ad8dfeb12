"""The rendered text: golden modules, and that random programs give clean ones."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attnfuzz.generators.kernels.base import Body
from attnfuzz.generators.kernels.flex.paged import Paged
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.registry import REGISTRY
from attnfuzz.generators.kernels.specs import (
    Flex,
    Function,
    Handwritten,
    MultiheadAttention,
    Sdpa,
    TransformerLayer,
)
from attnfuzz.generators.model import masks, scores
from attnfuzz.generators.model.indices import Index, IntBinary, IntConst, Table
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Input,
    Layout,
    Mesh,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.module import source
from attnfuzz.generators.strategies.shards import generate
from attnfuzz.generators.strategies.swarm import PROFILES

GOLDEN = Path(__file__).parent / "golden" / "render"
SMALL = Shape(batch=2, q_heads=4, kv_heads=2, q_len=8, kv_len=12, head_dim=8)
PER_BATCH = masks.And(left=masks.Documents(per_batch=True), right=masks.Causal())
BIAS = Table(axes=("h", "q_idx"), dtype="float32", init="normal")

PROGRAMS = {
    "default": Program(),
    "sdpa-causal-math-gqa": Program(
        kernel=Sdpa(mask_form="is_causal", backend="math", enable_gqa=True, scale=0.5),
        shape=SMALL, mask=masks.Causal(), compile=Compile(dynamic=True),
    ),
    "sdpa-float-mask-training": Program(
        kernel=Sdpa(mask_form="float", broadcast=("h",), mask_requires_grad=True),
        mask=masks.KeyPadding(),
        q=Input(dtype="bfloat16"), k=Input(dtype="bfloat16"), v=Input(dtype="bfloat16"),
        training=Training(wrt=("q", "v"), grad_layout="transposed"),
        surround=Surround(checkpoint="selective"),
    ),
    "region-of-layers": Program(
        surround=Surround(layers=2, region=True), compile=Compile(), training=Training(),
    ),
    "layers-of-a-module-checkpointed": Program(
        surround=Surround(projections=True, checkpoint="full", layers=3), training=Training(),
    ),
    "layouts": Program(
        q=Input(layout=Layout(order=(0, 2, 1, 3), start=(0, 0, 2, 0), pad=(0, 0, 3, 1))),
        k=Input(layout=Layout(order=(2, 0, 1, 3), step=(1, 1, 2, 1)), values="large"),
        v=Input(layout=Layout(expand=(0, 1)), values="one_hot"),
        shape=replace(SMALL, kv_heads=4), dirty_memory=True,
    ),
    "packed-double-backward": Program(
        packed="qkv", q=Input(layout=Layout(order=(0, 2, 1, 3))),
        shape=Shape(batch=2, q_heads=2, kv_heads=2), kernel=Sdpa(backend="math"),
        training=Training(double=True, grad_layout="expanded"),
    ),
    "handwritten-baddbmm": Program(
        kernel=Handwritten(product="baddbmm", masking="add", fill="finfo_min", dropout=True),
        shape=replace(SMALL, kv_heads=4), mask=masks.SlidingWindow(window=2),
        autocast="bfloat16",
    ),
    "handwritten-rank5-transposed": Program(
        kernel=Handwritten(
            product="rank5", transposed=True, transpose="permute", scaling="both",
            scale_as="tensor", softmax="exp_sum", softmax_dtype="float32", out_layout="merged",
        ),
        shape=SMALL, mask=masks.PrefixLM(prefix=3, per_batch=True), transform="vmap",
    ),
    "flex-causal": Program(
        kernel=Flex(block_mask=BlockMaskSpec()), mask=masks.Causal(), compile=Compile()
    ),
    "flex-documents-adjusted": Program(
        kernel=Flex(
            block_mask=BlockMaskSpec(
                batch=True, spare_batch=1, built_for_extra=(4, 0), block_size=(16, 32)
            ),
            enable_gqa=True, return_lse=True, kernel_options={"BLOCK_M": 16},
        ),
        shape=SMALL, mask=PER_BATCH, grad_mode="no_grad",
    ),
    "flex-learnable-bias-inside": Program(
        kernel=Flex(block_mask=BlockMaskSpec(made="inside"), enable_gqa=True), shape=SMALL,
        mask=masks.Tree(),
        score_mod=scores.Softcap(
            inner=scores.Alibi(
                inner=scores.FloatBinary(
                    op="+", left=scores.Score(),
                    right=scores.FloatLookup(table=BIAS, requires_grad=True, chained=True),
                )
            )
        ),
        training=Training(wrt=("q",)), compile=Compile(mode="max-autotune", fullgraph=False),
    ),
    "flex-cached-calls": Program(
        kernel=Flex(block_mask=BlockMaskSpec()), mask=masks.BlockMap(block=4),
        score_mod=scores.RelativeBias(inner=scores.Score(), dtype="bfloat16"),
        calls=(Call(batch=2, q_len=4, kv_len=4, fresh_mods=False),),
        compile=Compile(options={"max_autotune": True}),
    ),
    "flex-nan-keys": Program(
        kernel=Flex(block_mask=BlockMaskSpec(batch=True), enable_gqa=True), shape=SMALL,
        mask=masks.KeyPadding(), k=Input(values="nan_at_masked", layout=Layout(expand=(1,))),
    ),
    "flex-chained-truth": Program(
        kernel=Flex(), shape=replace(SMALL, kv_heads=4),
        score_mod=scores.Truth(
            mask=masks.Not(
                inner=masks.TableMask(
                    table=Table(axes=("b", "q_idx"), dtype="bool", init="coin"), chained=True
                )
            )
        ),
    ),
    "flex-partial-nested": Program(
        kernel=Flex(block_mask=BlockMaskSpec(made="inside"), mods="partial"), shape=Shape(batch=2),
        mask=masks.Documents(causal=True), surround=Surround(checkpoint="full"), compile=Compile(),
    ),
    "flex-cached-callable": Program(
        kernel=Flex(block_mask=BlockMaskSpec(made="cached"), mods="callable"),
        mask=masks.Documents(),
    ),
    "flex-method-score": Program(
        kernel=Flex(mods="method"), score_mod=scores.RelativeBias(inner=scores.Score()),
        calls=(Call(batch=1, q_len=4, kv_len=4),),
    ),
    "flex-nested": Program(
        kernel=Flex(block_mask=BlockMaskSpec(), mods="nested"), mask=masks.Causal(),
    ),
    "flex-paged": Program(
        kernel=Flex(
            block_mask=BlockMaskSpec(
                block_size=(8, 4), batch=True, paged=Paged(kv_len=True, parts=2, erased=True)
            ),
            mods="lambda",
        ),
        mask=masks.Causal(), score_mod=scores.RelativeBias(inner=scores.Score()),
        shape=Shape(batch=2, kv_len=18),
    ),
    "mesh-sharded": Program(
        mesh=Mesh(world_size=4, q="length", k="heads", v="heads"), mask=masks.Documents(),
        shape=Shape(q_heads=4, kv_heads=4), kernel=Handwritten(masking="add"),
    ),
    "mesh-of-processes": Program(
        mesh=Mesh(world_size=2, ranks="processes", q="length"), compile=Compile(),
        kernel=Handwritten(),
    ),
    "mesh-of-one-compiled": Program(
        mesh=Mesh(q="heads", k="heads", v="heads"), mask=masks.Causal(), compile=Compile(),
        kernel=Sdpa(backend="math", mask_form="is_causal"), training=Training(),
    ),
    "module-jvp": Program(
        surround=Surround(rope=True, qk_norm=True), transform="jvp", kernel=Sdpa(backend="math")
    ),
    "module-interleaved": Program(surround=Surround(rope=True, rope_interleaved=True)),
    "module-projected": Program(
        surround=Surround(projections=True, rope=True), shape=SMALL, training=Training(),
        kernel=Sdpa(enable_gqa=True),
    ),
    "module-epilogue": Program(
        surround=Surround(projections=True, epilogue="gated"), kernel=Flex(), compile=Compile()
    ),
    "handwritten-residual": Program(
        surround=Surround(epilogue="residual"),
        kernel=Handwritten(product="bmm", scaling="query_mul"),
    ),
    "multihead-nested": Program(
        kernel=MultiheadAttention(self_attention=True, nested=True),
        shape=replace(SMALL, kv_heads=4, kv_len=8),
    ),
    "multihead-function-static": Program(
        kernel=MultiheadAttention(
            called="function", batch_first=False, static="both", need_weights="heads",
        ),
        shape=replace(SMALL, kv_heads=4), mask=masks.Causal(), training=Training(wrt=("k",)),
    ),
    "transformer-encoder-trained": Program(
        kernel=TransformerLayer(mode="train", is_causal="true"), mask=masks.Causal(),
        training=Training(wrt=("q",)), compile=Compile(),
    ),
    "transformer-whole": Program(
        kernel=TransformerLayer(
            layer="transformer", num_layers=2, final_norm=True, mask_form="square",
            is_causal="true", source_mask=True, source_padding=True, memory_padding=True,
        ),
        shape=replace(SMALL, kv_heads=4), mask=masks.Causal(),
    ),
    "transformer-decoder-layers": Program(
        kernel=TransformerLayer(
            layer="decoder", num_layers=2, final_norm=True, norm_first=True, batch_first=False,
            activation="gelu", mask_form="biased", mask_rank=3, memory_mask=True,
            memory_padding=True,
        ),
        shape=replace(SMALL, kv_heads=4), mask=masks.Documents(per_batch=True),
    ),
    "transformer-encoder-padded-calls": Program(
        kernel=TransformerLayer(num_layers=1, key_padding=True, bias=False),
        calls=(Call(batch=3, q_len=4, kv_len=4),),
    ),
    "function-grad": Program(
        kernel=Function(target="my.kernels:attention"), mask=masks.Causal(), transform="grad"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str) -> None:
    """`ATTNFUZZ_UPDATE_GOLDEN=1 pytest tests/test_render.py` writes them anew."""
    assert problems(PROGRAMS[name]) == []
    text = source(PROGRAMS[name])
    path = GOLDEN / f"{name}.py"
    if os.environ.get("ATTNFUZZ_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def names_of(text: str) -> set[str]:
    """What a module defines at top level."""
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return found


def lint(folder: Path) -> str:
    """Ruff's complaints about unused or undefined names, syntax and style."""
    rules = "E4,E7,E9,F,I,W"
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "-q"]
    command += ["--line-length", "100", "--ignore", "E731"]  # a mod may be written as a lambda
    result = subprocess.run(
        [*command, "--select", rules, str(folder)], capture_output=True, text=True
    )
    return result.stdout + result.stderr


def test_random_programs_give_clean_modules(tmp_path: Path) -> None:
    """Each parses, has the contract's names, and neither unused nor undefined ones."""
    for i, program in enumerate(generate(11, 200)):
        text = source(program)
        contract = {"inputs", "attention", "reference", "run"}
        contract |= {"compiled"} if program.compile else set()
        contract |= {"CALLS"} if program.calls else set()
        assert contract <= names_of(text)
        (tmp_path / f"program_{i}.py").write_text(text)
    assert lint(tmp_path) == ""


def test_golden_modules_are_clean(tmp_path: Path) -> None:
    for name, program in PROGRAMS.items():
        (tmp_path / f"{name.replace('-', '_')}.py").write_text(source(program))
    assert lint(tmp_path) == ""


def test_rendering_does_not_depend_on_what_was_rendered_before() -> None:
    texts = {name: source(program) for name, program in PROGRAMS.items()}
    for name in reversed(list(PROGRAMS)):
        assert source(PROGRAMS[name]) == texts[name]


def test_only_needed_brackets() -> None:
    q, two = Index(axis="q_idx"), IntConst(value=2)
    sum_ = IntBinary(op="+", left=q, right=IntConst(value=-2))
    mask = masks.Compare(
        op="==",
        left=IntBinary(op="%", left=sum_, right=two),
        right=IntBinary(op="-", left=q, right=IntBinary(op="-", left=q, right=two)),
    )
    text = source(Program(kernel=Flex(block_mask=BlockMaskSpec()), mask=mask))
    assert "return (q_idx - 2) % 2 == q_idx - (q_idx - 2)\n" in text


def test_a_kernel_may_write_its_reference_out(monkeypatch: pytest.MonkeyPatch) -> None:
    body = Body(
        ["out", "probs"], ["probs = torch.softmax(q @ k.mT, dim=-1)", "out = probs @ v[:B]"]
    )
    monkeypatch.setattr(type(REGISTRY["sdpa"]), "plain_body", lambda *_: body)
    around = Program(
        surround=Surround(qk_norm=True, epilogue="scaled"),
        calls=(Call(batch=2, q_len=4, kv_len=4),),
    )
    text = source(around).partition("def reference(q, k, v):\n")[2].partition("\n\n\n")[0]
    norm = "t * torch.rsqrt(t.square().mean(dim=-1, keepdim=True) + 1e-6)"
    assert text.splitlines() == [
        "    B = q.shape[0]",
        f"    q, k = ({norm} for t in (q, k))",
        "    probs = torch.softmax(q @ k.mT, dim=-1)",
        "    out = probs @ v[:B]",
        "    return out * 0.5, probs",
    ]
    derived = source(Program(transform="grad"))
    assert "    return out\n" in derived


BODIES = ("inputs", "attention", "reference")


@pytest.mark.parametrize("profile", sorted(PROFILES.keys() - {"function"}))
def test_no_loop_sets_a_name_that_is_set_otherwise(profile: str) -> None:
    """A loop over lengths would change the length that a mask has captured."""
    for program in generate(5, 100, profile=profile):
        for scope in ast.walk(ast.parse(source(program))):
            if isinstance(scope, ast.FunctionDef) and scope.name in BODIES:
                looped, assigned = names_set(scope)
                assert not looped & assigned, source(program)


def names_set(scope: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """Names that loops in the scope set, functions in it left out, and those set otherwise."""
    looped: set[str] = set()
    assigned: set[str] = set()
    left: list[ast.AST] = list(scope.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.For):
            looped |= stored(node.target)
        elif isinstance(node, ast.Assign):
            assigned |= {name for target in node.targets for name in stored(target)}
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            left += ast.iter_child_nodes(node)
    return looped, assigned | {argument.arg for argument in scope.args.args}


def stored(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}

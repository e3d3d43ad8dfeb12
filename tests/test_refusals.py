"""Refusals: each is precise, and belongs to the programs that ask for what is declined."""

from __future__ import annotations

import re

import pytest

from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.graph.decode import Decode
from attnfuzz.generators.kernels.graph.plainer import alone
from attnfuzz.generators.kernels.refusals import for_program
from attnfuzz.generators.kernels.registry import REGISTRY
from attnfuzz.generators.kernels.shared_refusals import COMPILE
from attnfuzz.generators.kernels.specs import Flex, Function, Handwritten, Sdpa
from attnfuzz.generators.model.masks import Causal, KeyPadding
from attnfuzz.generators.model.program import (
    Call,
    Compile,
    Input,
    Marks,
    Mesh,
    Program,
    Shape,
    Surround,
    Training,
)
from attnfuzz.generators.model.scores import Alibi, FloatConst, Score

FLASH_HAS_NO_DERIVATIVE = (
    "RuntimeError: derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward is "
    "not implemented"
)
NO_BACKWARD = (
    "NotImplementedError: FlexAttention does not support backward on CPU. Please set the input "
    "requires_grad to False or use another device."
)
NO_KERNEL = "RuntimeError: No available kernel.  Aborting execution."
NO_BACKEND = (
    "RuntimeError: No viable backend for scaled_dot_product_attention was found. This is likely "
    "due to turning off both the math kernel and the fused kernels."
)
MIXED_SDPA = (
    "RuntimeError: Expected query, key, and value to have the same dtype, but got query.dtype: "
    "float key.dtype: c10::BFloat16 and value.dtype: float instead."
)
HEADS = "The size of tensor a (4) must match the size of tensor b (2) at non-singleton dimension 1"
NO_LSE = (
    "torch._inductor.exc.LoweringException: NotImplementedError: torch.compile on CPU only "
    "supports inference and `return_lse` is not supported yet.\n  target: flex_attention"
)
NO_FLOAT64 = (
    "torch._inductor.exc.LoweringException: NotImplementedError: `torch.float` , `torch.float16` "
    "and `torch.bfloat16` are supported in FlexAttention for CPU device. Found input tensors are "
    "`torch.float64`.\n  target: flex_attention"
)
SLICED = "RuntimeError: Cannot use mask_mod from a sliced BlockMask"
AOT_DOUBLE = (
    "RuntimeError: torch.compile with aot_autograd does not currently support double backward"
)
RECOMPILE = "torch._dynamo.exc.Unsupported: Dynamo recompile limit exceeded\n  Explanation: Dynamo"
AROUND = (
    "torch._dynamo.exc.Unsupported: Unsupported functorch tracing attempt\n  Explanation: If you "
    "are reaching here, it means dynamo failed for one of the following reasons:\n    - Calling "
    "torch.func.vmap(compiled_fn) function from eager mode is not supported. Ensure that "
)
UNSAFE = (
    "torch._dynamo.exc.Unsupported: HOP: Unsafe side effect\n  Higher Order Operator: "
    "torch.utils.checkpoint.checkpoint\n  Explanation: Mutating a variable"
)
UNSAFE_MODE = (
    "torch._dynamo.exc.Unsupported: HOP: Unsafe side effect\n  Explanation: Mutating a variable "
    "from outside the scope of this HOP is not supported."
)
PENDING = (
    "torch._dynamo.exc.InternalTorchDynamoError: PendingUnbackedSymbolNotFound: Pending unbacked "
    "symbols {u1} not in returned outputs FakeTensor(..., size=(1, 1, 16, 16)) ((256, …"
)
DECODING = next(alone(Decode()))
GRAD_OF_AUTOCAST = "RuntimeError: expected scalar type BFloat16 but found Float"
SHARDS = "AssertionError: LocalTensor shards must be the same to reconcile"
GROUPS = Shape(q_heads=2)
UNBACKED = Compile(backend="eager", marks=Marks(kv_len="unbacked"))
KEPT_ID = (
    "torch._dynamo.exc.Unsupported: Reconstruction of FakeIdVariable\n  Explanation: A fake id "
    "produced by id() on a compile-time container cannot be reconstructed across a graph break."
)
LEFT_BEHIND = (
    "torch._dynamo.exc.InternalTorchDynamoError: RuntimeError: An intermediate tensor 'indices' "
    "created inside a higher-order op subgraph aliases an input or output, so it was not included "
    "in the subgraph outputs."
)
NO_RULE = (
    "NotImplementedError: Operator aten._scaled_dot_product_flash_attention_for_cpu.default does "
    "not have a sharding strategy registered."
)
RESHAPES = (
    "RuntimeError: This operation would remove or reshape sharded dimension 1, which requires "
    "redistribution."
)
MIXED_BY_ITSELF = (
    "RuntimeError: aten.add.Tensor got mixed torch.Tensor and DTensor, need to convert all "
    "torch.Tensor to DTensor before calling distributed operators!"
)
REENTRANT = (
    "RuntimeError: When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or "
    "passing an `inputs` parameter to .backward()."
)
LARGER = (
    "ValueError: block_mask was created for block_mask.shape=(1, 1, 32, 32) but got q_len=16 and "
    "kv_len=16. As the block mask was created for a larger length than you're using it for, you can"
)
BADDBMM = (
    "RuntimeError: Input dtypes must be the same, got: input float, batch1: c10::BFloat16, batch2: "
    "float"
)
MATMUL = "RuntimeError: expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16"
NO_CHOICES = (
    "torch._inductor.exc.LoweringException: NoValidChoicesError: No choices to select. Please "
    "consider adding ATEN into max_autotune_gemm_backends config"
)
MIXED_DTENSOR = (
    "RuntimeError: npu.npu_fusion_attention.default got mixed torch.Tensor and DTensor, need to "
    "convert all torch.Tensor to DTensor before calling distributed operators!"
)

TILES = (
    "torch._inductor.exc.LoweringException: ValueError: Q and KV block size must be divisible by "
    "BLOCK_M and BLOCK_N. We got Q_BLOCK_SIZE=8 and KV_BLOCK_SIZE=128."
)
NARROW = (
    "torch._inductor.exc.LoweringException: NotImplementedError: NYI: embedding dimension of the "
    "query, key, and value must be at least 16 but got E=160 and Ev=5"
)
ODD_BLOCKS = "ValueError: arange's range must be a power of 2"
NO_TILES = (
    "torch._inductor.exc.LoweringException: NoValidChoicesError: No choices to select. Provided "
    "reason: No choices exist for backend. please consider adding ATEN"
)
NOTHING_TO_INDEX = "IndexError: index is out of bounds for dimension with size 0"
NO_BATCH = "IndexError: select(): index 0 out of range for tensor of size [0] at dimension 0"
FEW_ROWS = "AssertionError: Input shapes should have M >= 1, N >= 1 and K >= 16"

NO_VECTORS = (
    "torch._inductor.exc.InductorError: LoweringException: AssertionError: \n"
    "  target: flex_attention"
)

NO_SCORE = (
    "RuntimeError: flex_attention backward requires the output of score_mod to depend on score. "
    "Got a score_mod whose output does not require gradients with respect to score."
)

BF16 = Input(dtype="bfloat16")
NINE_SHAPES = tuple(Call(batch=1, q_len=n, kv_len=n) for n in range(1, 10))
BLOCKS = BlockMaskSpec()


def refuses(program: Program, text: str) -> bool:
    return any(re.search(refusal.pattern, text) for refusal in for_program(program))


ASKED_AND_NOT = [
    (
        TILES,
        Program(kernel=Flex(block_mask=BlockMaskSpec(block_size=(8, 128))), mask=Causal()),
        Program(kernel=Flex(block_mask=BLOCKS), mask=Causal()),
    ),
    (
        NO_VECTORS,
        Program(kernel=Flex(), compile=Compile(options={"cpp.simdlen": 0})),
        Program(kernel=Flex(), compile=Compile(options={"cpp.simdlen": 256})),
    ),
    (
        ODD_BLOCKS,
        Program(kernel=Flex(block_mask=BlockMaskSpec(block_size=(128, 96))), mask=Causal()),
        Program(kernel=Flex(block_mask=BlockMaskSpec(block_size=(128, 32))), mask=Causal()),
    ),
    (
        NO_TILES,
        Program(kernel=Flex(block_mask=BlockMaskSpec(block_size=(1, 1))), mask=Causal()),
        Program(kernel=Flex(block_mask=BLOCKS), mask=Causal()),
    ),
    (
        NOTHING_TO_INDEX,
        Program(kernel=Flex(), compile=Compile(), shape=Shape(q_len=0)),
        Program(kernel=Flex(), compile=Compile()),
    ),
    (
        LEFT_BEHIND,
        Program(compile=Compile(), surround=Surround(region=True)),
        Program(compile=Compile()),
    ),
    (NO_BATCH, Program(kernel=Flex(), shape=Shape(batch=0)), Program(kernel=Flex())),
    (
        FEW_ROWS,
        Program(kernel=Flex(block_mask=BlockMaskSpec(block_size=(128, 1))), mask=Causal()),
        Program(kernel=Flex(block_mask=BlockMaskSpec(block_size=(16, 16))), mask=Causal()),
    ),
    (
        NARROW,
        Program(kernel=Flex(), compile=Compile(), shape=Shape(head_dim=160, v_head_dim=5)),
        Program(kernel=Flex(), compile=Compile(), shape=Shape(head_dim=16)),
    ),
    (
        FLASH_HAS_NO_DERIVATIVE,
        Program(training=Training(double=True)),
        Program(training=Training()),
    ),
    (
        NO_SCORE,
        Program(kernel=Flex(), training=Training(), score_mod=FloatConst(value=1.0)),
        Program(kernel=Flex(), training=Training(), score_mod=Alibi(inner=Score())),
    ),
    (NO_BACKWARD, Program(kernel=Flex(), training=Training()), Program(kernel=Flex())),
    (NO_BACKWARD, Program(kernel=Flex(), transform="grad"), Program(transform="grad")),
    (NO_KERNEL, Program(kernel=Sdpa(backend="flash")), Program()),
    (NO_BACKEND, Program(kernel=Sdpa(backend="efficient")), Program(kernel=Sdpa(backend="math"))),
    (MIXED_SDPA, Program(k=BF16), Program()),
    (
        HEADS,
        Program(shape=Shape(q_heads=4, kv_heads=2)),
        Program(shape=Shape(q_heads=4, kv_heads=2), kernel=Sdpa(enable_gqa=True)),
    ),
    (
        NO_LSE,
        Program(kernel=Flex(return_lse=True), compile=Compile()),
        Program(kernel=Flex(return_lse=True), compile=Compile(backend="aot_eager")),
    ),
    (
        NO_FLOAT64,
        Program(kernel=Flex(), compile=Compile(), q=Input(dtype="float64")),
        Program(kernel=Flex(), compile=Compile(), q=BF16),
    ),
    (
        SLICED,
        Program(kernel=Flex(block_mask=BlockMaskSpec(spare_batch=1)), mask=Causal()),
        Program(kernel=Flex(block_mask=BLOCKS), mask=Causal()),
    ),
    (
        AOT_DOUBLE,
        Program(kernel=Handwritten(), compile=Compile(), training=Training(double=True)),
        Program(kernel=Handwritten(), compile=Compile(), training=Training()),
    ),
    (
        RECOMPILE,
        Program(compile=Compile(dynamic=False), calls=NINE_SHAPES),
        Program(compile=Compile(), calls=NINE_SHAPES),
    ),
    (AROUND, Program(compile=Compile(), transform="vmap"), Program(compile=Compile())),
    (
        PENDING,
        Program(kernel=Handwritten(gqa="expand"), shape=GROUPS, compile=UNBACKED),
        Program(kernel=Handwritten(), shape=GROUPS, compile=UNBACKED),
    ),
    (
        PENDING,
        Program(kernel=Handwritten(), mask=Causal(), compile=UNBACKED),
        Program(kernel=Handwritten(), compile=UNBACKED),
    ),
    (
        PENDING,
        Program(kernel=DECODING, compile=UNBACKED),
        Program(kernel=DECODING, compile=Compile(backend="eager")),
    ),
    (
        GRAD_OF_AUTOCAST,
        Program(transform="grad", autocast="bfloat16"),
        Program(training=Training(), autocast="bfloat16"),
    ),
    (
        SHARDS,
        Program(kernel=Handwritten(), mask=KeyPadding(), mesh=Mesh(world_size=2, v="length")),
        Program(kernel=Handwritten(), mask=Causal(), mesh=Mesh(world_size=2, v="length")),
    ),
    (
        UNSAFE,
        Program(kernel=Flex(), compile=Compile(), surround=Surround(checkpoint="full")),
        Program(kernel=Flex(), compile=Compile()),
    ),
    (
        UNSAFE_MODE,
        Program(kernel=Flex(), compile=Compile(), surround=Surround(checkpoint="full")),
        Program(kernel=Flex(), compile=Compile()),
    ),
    (
        KEPT_ID,
        Program(
            kernel=Flex(block_mask=BlockMaskSpec(made="cached")), mask=Causal(), compile=Compile()
        ),
        Program(
            kernel=Flex(block_mask=BlockMaskSpec(made="inside")), mask=Causal(), compile=Compile()
        ),
    ),
    (NO_RULE, Program(mesh=Mesh()), Program()),
    (RESHAPES, Program(kernel=Handwritten(), mesh=Mesh(q="heads")), Program(kernel=Handwritten())),
    (
        MIXED_BY_ITSELF,
        Program(mesh=Mesh(plain_mask=True), mask=KeyPadding(), kernel=Sdpa(broadcast=("h",))),
        Program(mesh=Mesh(), mask=KeyPadding(), kernel=Sdpa(broadcast=("h",))),
    ),
    (
        REENTRANT,
        Program(training=Training(), surround=Surround(checkpoint="reentrant")),
        Program(training=Training(), surround=Surround(checkpoint="full")),
    ),
    (
        LARGER,
        Program(kernel=Flex(block_mask=BlockMaskSpec(other=(0, 0, 16, 16))), mask=Causal()),
        Program(kernel=Flex(block_mask=BlockMaskSpec(built_for_extra=(16, 16))), mask=Causal()),
    ),
    (MATMUL, Program(kernel=Handwritten(), k=BF16), Program(kernel=Handwritten())),
    (
        BADDBMM,
        Program(kernel=Handwritten(product="baddbmm", transposed=True), k=BF16),
        Program(kernel=Handwritten(product="baddbmm", transposed=True)),
    ),
    (
        NO_CHOICES,
        Program(compile=Compile(options={"max_autotune_gemm_backends": "TRITON"})),
        Program(compile=Compile(mode="max-autotune")),
    ),
]


@pytest.mark.parametrize(("text", "asked", "not_asked"), ASKED_AND_NOT)
def test_a_refusal_is_by_design_only_for_programs_that_ask_for_it(
    text: str, asked: Program, not_asked: Program
) -> None:
    assert refuses(asked, text)
    assert not refuses(not_asked, text)


BUGS = [
    "torch._inductor.exc.LoweringException: AttributeError: 'View' has no attribute 'layout'",
    "RuntimeError: std::bad_alloc",
    "torch._inductor.exc.CppCompileError: C++ compile error: cannot convert 'float*' to 'bool*'",
    "IndexError: tuple index out of range",
    "AssertionError: expected size 4==4, stride 8==48 at dim=1",
    "torch._inductor.exc.LoweringException: NoValidChoicesError: No choices to select",
    "RuntimeError: The size of tensor a (4) must match the size of tensor b (2) at non-singleton "
    "dimension 2",
    "torch._dynamo.exc.Unsupported: call_id with args (NestedUserFunctionVariable(),)",
    "RuntimeError: view size is not compatible with input tensor's size and stride",
]


@pytest.mark.parametrize("text", BUGS)
def test_bugs_are_not_refusals_of_any_program(text: str) -> None:
    for _, asked, not_asked in ASKED_AND_NOT:
        assert not refuses(asked, text)
        assert not refuses(not_asked, text)


def test_a_users_function_may_be_refused_whatever_a_kernel_refuses() -> None:
    own = Program(kernel=Function(target="mine:attention"))
    assert refuses(own, NO_BACKWARD)
    assert refuses(own, MIXED_DTENSOR)
    assert not refuses(Program(), MIXED_DTENSOR)


def test_every_refusal_compiles_says_why_and_is_specific() -> None:
    every = [*(row for plugin in REGISTRY.values() for row in plugin.refusals), *COMPILE]
    for refusal in every:
        re.compile(refusal.pattern)
        assert refusal.why and "\n" not in refusal.why
        assert not re.search(refusal.pattern, "RuntimeError: something else went wrong")
        assert not re.search(refusal.pattern, "")


def test_the_default_program_is_refused_nothing() -> None:
    assert for_program(Program()) == ()

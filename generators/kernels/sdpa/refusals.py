"""Refusals of SDPA."""

from __future__ import annotations

from attnfuzz.generators.kernels import conditions
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.sdpa.spec import Sdpa
from attnfuzz.generators.kernels.shared_refusals import AUTOGRAD, MESH, ONE_DTYPE
from attnfuzz.generators.model.program import Program


def mask_dtype_may_differ(program: Program) -> bool:
    """Whether attn_mask is additive and may reach SDPA in another dtype than q's."""
    kernel = program.kernel
    additive = isinstance(kernel, Sdpa) and kernel.mask_form == "float"
    return additive and (conditions.dtypes_may_differ(program) or program.autocast is not None)


def forces_fused_backend(program: Program) -> bool:
    """Whether SDPA may use the flash or the memory-efficient backend only."""
    kernel = program.kernel
    if not isinstance(kernel, Sdpa) or kernel.set_priority:
        return False
    return kernel.backend in ("flash", "efficient")


SDPA: tuple[Refusal, ...] = (
    Refusal(
        pattern=r"Expected attn_mask dtype to be bool or float or to match query dtype",
        why="an additive attn_mask has q's dtype",
        needs=mask_dtype_may_differ,
    ),
    Refusal(
        pattern=r"No available kernel\.\s+Aborting execution",
        why="the forced SDPA backend has no kernel for these inputs",
        needs=forces_fused_backend,
        thread="pytorch/torchtitan#1034",
    ),
    Refusal(
        pattern=r"No viable backend for scaled_dot_product_attention was found",
        why="the forced SDPA backend has no kernel for these inputs",
        needs=forces_fused_backend,
        thread="pytorch/torchtitan#1034",
    ),
    Refusal(
        pattern=r"The size of tensor a \(\d+\) must match the size of tensor b \(\d+\) "
        r"at non-singleton dimension 1\b",
        why="Hq != Hkv needs enable_gqa=True",
        needs=conditions.gqa_not_enabled,
    ),
    Refusal(
        pattern=r"derivative for aten::_scaled_dot_product_(flash|efficient|cudnn)_attention"
        r"(_for_cpu)?_backward is not implemented",
        why="the fused SDPA kernels have no second derivative",
        needs=conditions.differentiates_twice,
        thread="pytorch/pytorch#116350",
    ),
    Refusal(
        pattern=r"Trying to use forward AD with _scaled_dot_product_\w+ that does not support it",
        why="the fused SDPA kernels have no forward-mode derivative",
        needs=conditions.forward_mode,
        thread="pytorch/pytorch#128971",
    ),
)

REFUSALS: tuple[Refusal, ...] = (ONE_DTYPE, *SDPA, *AUTOGRAD, *MESH)

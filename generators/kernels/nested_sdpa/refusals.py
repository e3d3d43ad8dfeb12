"""Refusals of SDPA of nested tensors.

On a CPU `torch/nested/_internal/sdpa.py` has the math back-end alone, which takes no `is_causal`
("Nested tensors for query / key are not supported when is_causal=True.") but where the sequences
are whole: there the values go to SDPA as they are.
"""

from __future__ import annotations

from attnfuzz.generators.kernels.nested_sdpa.spec import NestedSdpa
from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.shared_refusals import ONE_DTYPE
from attnfuzz.generators.model.program import Program


def causal_of_sequences(program: Program) -> bool:
    """Whether `is_causal` is asked for within jagged sequences."""
    kernel = program.kernel
    return isinstance(kernel, NestedSdpa) and kernel.is_causal and kernel.made != "ragged_batch"


def one_graph(program: Program) -> bool:
    """Whether jagged sequences are to be compiled without a graph break."""
    kernel, compiled = program.kernel, program.compile
    ragged = isinstance(kernel, NestedSdpa) and kernel.made != "ragged_batch"
    return ragged and compiled is not None and compiled.fullgraph


REFUSALS: tuple[Refusal, ...] = (
    ONE_DTYPE,
    Refusal(
        pattern=r"No viable backend for scaled_dot_product_attention was found",
        why="the math back-end takes no is_causal with jagged sequences",
        needs=causal_of_sequences,
    ),
    Refusal(
        pattern=r"Nested tensors for query / key are not supported when is_causal=True",
        why="the math back-end takes no is_causal with nested tensors",
        needs=causal_of_sequences,
    ),
    Refusal(
        pattern=r"unsupported operator: aten\._nested_tensor_from_tensor_list\.default|"
        r"Operator 'aten\._local_scalar_dense\.default' has a non-Tensor output",
        why="on a CPU jagged tensors become strided ones in SDPA, which are not traced",
        needs=one_graph,
    ),
    Refusal(
        pattern=r"GuardOnDataDependentSymNode: Could not guard on data-dependent expression",
        why="lengths that are taken out of a tensor cannot be guarded on in one graph",
        needs=one_graph,
    ),
)

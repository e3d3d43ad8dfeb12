"""A stand-in for torch_npu, for machines without an Ascend NPU: `npu_fusion_attention` alone, with
the schema of torch_npu 2.13 and the numbers of its documentation, computed by PyTorch on the CPU.

What runs through it says something about what calls the operator and what compiles it, and
nothing about the NPU's kernel. Where the real torch_npu is installed, the schemas here are looked
for in its library, and loading this file fails if they are not there. DTensor has no rule for it.
"""

import importlib.util
import mmap
import sys
import types
from pathlib import Path

import torch

FORWARD = (
    "npu_fusion_attention(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, "
    "Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1., "
    "float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, "
    "int inner_precise=0, int[]? prefix=None, int[]? actual_seq_qlen=None, "
    "int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
    'bool sync=False, str softmax_layout="", Tensor? sink=None, Tensor? dropout_mask=None, '
    "int seed=0, int offset=0) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)"
)
BACKWARD = (
    "npu_fusion_attention_grad(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, "
    "str input_layout, *, Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, "
    "Tensor? softmax_max=None, Tensor? softmax_sum=None, Tensor? softmax_in=None, "
    "Tensor? attention_in=None, float scale_value=1., float keep_prob=1., "
    "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int seed=0, "
    "int offset=0, int numels=0, int[]? prefix=None, int[]? actual_seq_qlen=None, "
    "int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
    'bool sync=False, str softmax_layout="", Tensor? sink=None) '
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def check_schemas() -> None:
    """Raises ImportError where an installed torch_npu has other schemas."""
    found = importlib.util.find_spec("torch_npu")
    if found is None or found.origin is None:
        return
    library = Path(found.origin).parent / "lib" / "libtorch_npu.so"
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for schema in (FORWARD, BACKWARD):
            if text.find(schema.encode()) < 0:
                raise ImportError(f"{library} has no operator {schema}")


def to_bnsd(t, heads, layout, ends):
    """Batch entries as `[N, S, D]` tensors; TND's end where `ends` says."""
    if layout == "TND":
        starts = [0, *ends[:-1]]
        return [t[a:b].transpose(0, 1) for a, b in zip(starts, ends, strict=True)]
    if layout in ("BSH", "SBH"):
        t = t.unflatten(2, (heads, -1))
        layout = "BSND" if layout == "BSH" else "SBND"
    order = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "SBND": (1, 2, 0, 3)}[layout]
    return list(t.permute(order))


def from_bnsd(entries, layout):
    """The entries in `layout` again, contiguous."""
    if layout == "TND":
        return torch.cat([t.transpose(0, 1) for t in entries])
    t = torch.stack(entries)
    if layout in ("BNSD", "BSND"):
        return (t if layout == "BNSD" else t.transpose(1, 2)).contiguous()
    return t.permute((0, 2, 1, 3) if layout == "BSH" else (2, 0, 1, 3)).flatten(2)


def hidden(rows, columns, entry, atten_mask, mode, pre, next_):
    """Where the query of batch entry `entry` sees nothing, broadcastable to `[N, rows, columns]`;
    None: nowhere."""
    if mode in (0, 1):
        if atten_mask is None or atten_mask.ndim == 2:
            return atten_mask
        return atten_mask[entry if atten_mask.shape[0] > 1 else 0]
    shift = 0 if mode == 2 else columns - rows
    distance = torch.arange(rows)[:, None] + shift - torch.arange(columns)
    return distance < 0 if mode in (2, 3) else (distance > pre) | (distance < -next_)


def probabilities(q, k, entry, atten_mask, scale, pre, next_, mode):
    """softmax(scale q k^T) of one entry, with its maxima and sums."""
    group = q.shape[0] // k.shape[0]
    scores = scale * (q.float() @ k.float().repeat_interleave(group, 0).mT)
    mask = hidden(q.shape[1], k.shape[1], entry, atten_mask, mode, pre, next_)
    if mask is not None:
        scores = scores.masked_fill(mask.bool(), float("-inf"))
    top = scores.amax(-1, keepdim=True)
    exp = (scores - top).exp()
    total = exp.sum(-1, keepdim=True)
    return exp / total, top, total


def check(pse, padding_mask, keep_prob, prefix, sink, mode):
    for name, given in (
        ("pse", pse), ("padding_mask", padding_mask), ("prefix", prefix), ("sink", sink),
    ):  # fmt: skip
        if given is not None:
            raise NotImplementedError(f"the stand-in for torch_npu has no {name}")
    if keep_prob != 1.0 or mode not in range(5):
        raise NotImplementedError("the stand-in for torch_npu has no dropout, and modes 0 to 4")


def forward(
    query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None,
    scale=1.0, keep_prob=1.0, pre_tockens=2147483647, next_tockens=2147483647, inner_precise=0,
    prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0,
    gen_mask_parallel=True, sync=False, softmax_layout="", sink=None, dropout_mask=None, seed=0,
    offset=0,
):  # fmt: skip
    check(pse, padding_mask, keep_prob, prefix, sink, sparse_mode)
    q, k, v = split(query, key, value, head_num, input_layout, actual_seq_qlen, actual_seq_kvlen)
    outs, tops, totals = [], [], []
    for i in range(len(q)):
        p, top, total = probabilities(
            q[i], k[i], i, atten_mask, scale, pre_tockens, next_tockens, sparse_mode
        )
        group = q[i].shape[0] // v[i].shape[0]
        outs.append((p @ v[i].float().repeat_interleave(group, 0)).to(query.dtype))
        tops.append(top.expand(-1, -1, 8))
        totals.append(total.expand(-1, -1, 8))
    gather = torch.stack if input_layout != "TND" else lambda t: torch.cat(t, 1).transpose(0, 1)
    statistics = [gather(tops).contiguous(), gather(totals).contiguous()]
    return from_bnsd(outs, input_layout), *statistics, query.new_empty(0), 0, 0, 0


def split(query, key, value, head_num, layout, q_ends, kv_ends):
    """The entries of q, k and v; k and v of BSH have as many heads as their width says."""
    heads = head_num
    if layout in ("BSH", "SBH"):
        heads = key.shape[2] * head_num // query.shape[2]
    return (
        to_bnsd(query, head_num, layout, q_ends),
        to_bnsd(key, heads, layout, kv_ends),
        to_bnsd(value, heads, layout, kv_ends),
    )


def backward(
    query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None,
    softmax_max=None, softmax_sum=None, softmax_in=None, attention_in=None, scale_value=1.0,
    keep_prob=1.0, pre_tockens=2147483647, next_tockens=2147483647, inner_precise=0, seed=0,
    offset=0, numels=0, prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0,
    gen_mask_parallel=True, sync=False, softmax_layout="", sink=None,
):  # fmt: skip
    q, k, v = split(query, key, value, head_num, input_layout, actual_seq_qlen, actual_seq_kvlen)
    grads = to_bnsd(dy, head_num, input_layout, actual_seq_qlen)
    dq, dk, dv = [], [], []
    for i in range(len(q)):
        p, _, _ = probabilities(
            q[i], k[i], i, atten_mask, scale_value, pre_tockens, next_tockens, sparse_mode
        )
        kv_heads = k[i].shape[0]
        group = q[i].shape[0] // kv_heads
        wide_k, wide_v = (t[i].float().repeat_interleave(group, 0) for t in (k, v))
        dp = grads[i].float() @ wide_v.mT
        ds = scale_value * p * (dp - (dp * p).sum(-1, keepdim=True))
        dq.append((ds @ wide_k).to(query.dtype))
        dk.append((ds.mT @ q[i].float()).unflatten(0, (kv_heads, group)).sum(1).to(key.dtype))
        dv.append((p.mT @ grads[i].float()).unflatten(0, (kv_heads, group)).sum(1).to(value.dtype))
    found = [from_bnsd(entries, input_layout) for entries in (dq, dk, dv)]
    return *found, query.new_empty(0), query.new_empty(0)


def forward_fake(query, key, value, head_num, input_layout, *args, **kwargs):
    sizes = dict(zip(input_layout, query.shape, strict=True))
    of_softmax = (
        (sizes["T"], head_num, 8) if "T" in sizes else (sizes["B"], head_num, sizes["S"], 8)
    )
    statistics = [query.new_empty(of_softmax, dtype=torch.float32) for _ in range(2)]
    return query.new_empty(query.shape), *statistics, query.new_empty(0), 0, 0, 0


def backward_fake(query, key, value, dy, head_num, input_layout, **kwargs):
    empty = query.new_empty(0), query.new_empty(0)
    return (
        query.new_empty(query.shape),
        key.new_empty(key.shape),
        value.new_empty(value.shape),
        *empty,
    )


KEPT = ("atten_mask", "pre_tockens", "next_tockens", "actual_seq_qlen", "actual_seq_kvlen",
        "sparse_mode")  # fmt: skip
NAMES = [argument.split("=")[0].split()[-1] for argument in FORWARD.split(") ->")[0].split(", ")]


def setup_context(ctx, inputs, output):
    given = dict(zip(NAMES, inputs, strict=False))
    ctx.save_for_backward(*inputs[:3], given.get("atten_mask"))
    ctx.head_num, ctx.layout = inputs[3:5]
    ctx.scale = given.get("scale", 1.0)
    ctx.options = {name: given[name] for name in KEPT[1:] if name in given}


def gradients(ctx, dy, *_):
    q, k, v, mask = ctx.saved_tensors
    dq, dk, dv, _, _ = torch.ops.npu.npu_fusion_attention_grad(
        q, k, v, dy, ctx.head_num, ctx.layout, atten_mask=mask, scale_value=ctx.scale, **ctx.options
    )
    return dq, dk, dv, *([None] * (len(NAMES) - 3))


check_schemas()
LIBRARY = torch.library.Library("npu", "DEF")
for schema, run, fake in ((FORWARD, forward, forward_fake), (BACKWARD, backward, backward_fake)):
    name = "npu::" + schema.partition("(")[0]
    LIBRARY.define(schema)
    torch.library.impl(name, "CPU")(run)
    torch.library.register_fake(name)(fake)
torch.library.register_autograd("npu::npu_fusion_attention", gradients, setup_context=setup_context)

module = types.ModuleType("torch_npu", __doc__)
module.__version__ = "stand-in"
module.npu_fusion_attention = torch.ops.npu.npu_fusion_attention
sys.modules["torch_npu"] = module

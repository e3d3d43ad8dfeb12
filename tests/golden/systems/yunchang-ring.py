import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard
from yunchang import LongContextAttention, set_seq_parallel_pg
from yunchang.kernels import AttnType


@torch.library.impl("aten::_scaled_dot_product_flash_attention", "CPU")
def flash_attention_stand_in(q, k, v, dropout_p=0.0, is_causal=False, debug=False, scale=None):
    # CPUs do not have this operator: theirs, which is not CUDA's, computes what it returns.
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = flash(q, k, v, dropout_p, is_causal, scale=scale)
    return out, lse, None, None, q.shape[2], k.shape[2], lse.new_zeros(2), lse.new_zeros(0), out


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (2,))
set_seq_parallel_pg(1, 2, dist.get_rank(), 2)
attend = LongContextAttention(ring_impl_type="zigzag", attn_type=AttnType.TORCH_FLASH)


def inputs():
    torch.manual_seed(0)
    q = torch.randn(2, 2, 24, 16)
    k = torch.randn(2, 2, 24, 16)
    v = torch.randn(2, 2, 24, 16)
    return q, k, v


def attention(q, k, v):
    order = torch.stack(
        (torch.arange(24).view(4, -1), torch.arange(24).view(4, -1).flip(0)), dim=1
    )[:2].flatten()
    q, k, v = (DTensor.from_local(t.transpose(1, 2)[:, order], MESH) for t in (q, k, v))
    q, k, v = (t.redistribute(MESH, [Shard(1)]).to_local() for t in (q, k, v))
    out = attend(q, k, v, causal=True)
    out = DTensor.from_local(out, MESH, [Shard(1)]).full_tensor()
    return out[:, order.argsort()].transpose(1, 2)


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    scores = scores.masked_fill(torch.ones(24, 24, dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}

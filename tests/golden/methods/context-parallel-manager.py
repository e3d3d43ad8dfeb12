import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch.distributed.tensor.experimental._context_parallel as cp


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 16, 8)
    k = torch.randn(1, 2, 16, 8)
    v = torch.randn(1, 2, 16, 8)
    return q, k, v


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (2,))
cp.set_rotate_method("alltoall")


@torch.library.impl("aten::_scaled_dot_product_flash_attention", "CPU")
def flash(q, k, v, p=0.0, causal=False, *_, scale=None):
    """The CPU's fused SDPA under the name of the cards', which torch's ring knows alone."""
    for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    none, (out, lse) = torch.tensor(0), for_cpu(q, k, v, p, causal, scale=scale)
    out, lse = torch.empty_like(q).copy_(out), lse.contiguous()  # as torch says of a card
    return out, lse, None, None, q.shape[2], k.shape[2], none, none, none


def scaled_dot_product_attention(q, k, v, is_causal=False, scale=None):
    """SDPA on a card; on a CPU it calls what torch's ring does not know."""
    return torch.ops.aten._scaled_dot_product_flash_attention(
        q, k, v, is_causal=is_causal, scale=scale
    )[0]


F.scaled_dot_product_attention = scaled_dot_product_attention


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attention(q, k, v):
    q, k, v = (t.clone(memory_format=torch.contiguous_format) for t in (q, k, v))
    with cp.context_parallel(MESH, buffers=[q, k, v], buffer_seq_dims=[2, 2, 2]):
        return cp.context_parallel_unshard(MESH, [attend(q, k, v)], [2])[0]


def reference(q, k, v):
    scores = 8 ** -0.5 * (q @ k.mT)
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}

import torch
import torch.distributed as dist
import torch.distributed.tensor.experimental._context_parallel as cp
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def make_mask_mod(document):
    def mask_mod(b, h, q_idx, kv_idx):
        return (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)

    return mask_mod


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 1024, 8)
    k = torch.randn(1, 2, 1024, 8)
    v = torch.randn(1, 2, 1024, 8)
    document = torch.randint(2, (1024,)).sort().values
    block_mask = create_block_mask(make_mask_mod(document), None, None, 1024, 1024, device="cpu")
    return q, k, v, block_mask


dist.init_process_group("gloo")
MESH = dist.init_device_mesh("cpu", (4,))


class Attention(torch.nn.Module):
    def forward(self, q, k, v, block_mask):
        return flex_attention(q, k, v, block_mask=block_mask)


style = cp._ContextParallel(2, cp._ContextParallel.AttentionType.FLEX)
attend = parallelize_module(Attention(), MESH, style)


def attention(q, k, v, block_mask):
    q, k, v, block_mask = cp._context_parallel_shard(MESH, [q, k, v, block_mask], [2, 2, 2, 2])
    return cp.context_parallel_unshard(MESH, [attend(q, k, v, block_mask)], [2])[0]


def reference(q, k, v, block_mask):
    scores = 8 ** -0.5 * (q @ k.mT)
    b = torch.arange(1)[:, None, None, None]
    h = torch.arange(2)[:, None, None]
    q_idx = torch.arange(1024)[:, None]
    kv_idx = torch.arange(1024)
    scores = scores.masked_fill(~block_mask.mask_mod(b, h, q_idx, kv_idx), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    return {"out": fn(*args)}

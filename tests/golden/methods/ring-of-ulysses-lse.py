import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard


def inputs():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 16, 8)
    k = torch.randn(1, 2, 16, 8)
    v = torch.randn(1, 2, 16, 8)
    document = torch.randint(2, (16,)).sort().values
    q_idx = torch.arange(16)[:, None]
    kv_idx = torch.arange(16)
    attn_mask = ((document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)).expand(1, 1, 16, 16)
    return q, k, v, attn_mask


dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (2, 2), mesh_dim_names=("length", "ulysses"))
RANK, SIZE, GROUP = MESH["length"].get_local_rank(), 2, MESH["length"].get_group()


def shard(x):
    x = DTensor.from_local(x, MESH, [Replicate(), Replicate()])
    return x.redistribute(MESH, [Shard(2), Shard(2)]).to_local()


def unshard(x):
    return DTensor.from_local(x, MESH, [Shard(2), Shard(2)]).full_tensor()


def to_heads(x):
    """More of the length, of fewer heads."""
    x = DTensor.from_local(x, MESH, [Shard(2), Shard(2)])
    return x.redistribute(MESH, [Shard(2), Shard(1)]).to_local()


def to_length(x):
    """Less of the length, of more heads."""
    x = DTensor.from_local(x, MESH, [Shard(2), Shard(1)])
    return x.redistribute(MESH, [Shard(2), Shard(2)]).to_local()


def attend(q, k, v, mask):
    """Attention to some of the keys, and its log-sum-exp."""
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~mask, float("-inf"))
    lse = scores.logsumexp(dim=-1, keepdim=True)
    probs = (scores - lse.masked_fill(lse == float("-inf"), 0)).exp()
    return probs @ v, lse


def merge(out, lse, other, other_lse):
    """Attention to the keys of both."""
    total = torch.logaddexp(lse, other_lse)
    shift = total.masked_fill(total == float("-inf"), 0)
    return (lse - shift).exp() * out + (other_lse - shift).exp() * other, total


def rotate(*tensors):
    """To the next rank, from the one before."""
    received = [t.new_empty(t.shape) for t in tensors]
    ops = [
        dist.P2POp(
            dist.isend, t.contiguous(), group=GROUP, group_peer=(RANK + 1) % SIZE
        ) for t in tensors
    ]
    ops += [dist.P2POp(dist.irecv, t, group=GROUP, group_peer=(RANK - 1) % SIZE) for t in received]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


def attention(q, k, v, attn_mask):
    attn_mask = DTensor.from_local(attn_mask, MESH, [Replicate(), Replicate()]).redistribute(
        MESH, [Shard(2), Replicate()]
    ).to_local()
    q, k, v = to_heads(shard(q)), to_heads(shard(k)), to_heads(shard(v))
    masks = attn_mask.split(8, dim=-1)
    out, lse = attend(q, k, v, masks[RANK])
    for step in range(1, SIZE):
        k, v = rotate(k, v)
        out, lse = merge(out, lse, *attend(q, k, v, masks[(RANK - step) % SIZE]))
    return unshard(to_length(out)), unshard(to_length(lse))[:, :, :, 0]


def reference(q, k, v, attn_mask):
    scores = 8 ** -0.5 * (q @ k.mT)
    scores = scores.masked_fill(~attn_mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v, scores.logsumexp(dim=-1)


def run(fn, args):
    out, lse = fn(*args)
    return {"out": out, "lse": lse}

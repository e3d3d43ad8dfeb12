"""wrong_result at eager: ddq is off by 20.3, rounding explains 0.000189"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
MESH = init_device_mesh("cpu", (1,))


def attention(q, k, v):
    q = DTensor.from_local(q, MESH, [Replicate()])
    k = DTensor.from_local(k, MESH, [Replicate()]).redistribute(MESH, [Shard(3)])
    v = DTensor.from_local(v, MESH, [Replicate()])
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-1)
    out = torch.matmul(probs, v)
    return out.full_tensor()


def reference(q, k, v):
    scores = 0.25 * (q @ k.mT)
    return torch.softmax(scores, dim=-1) @ v


def run(fn, args):
    q, k, v = args
    out = fn(*args)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.dtype)
    grads = torch.autograd.grad(out, (q, k, v), dout, create_graph=True)
    dq, dk, dv = grads
    ddq, ddk, ddv = torch.autograd.grad(
        sum(grad.square().sum() for grad in grads), (q, k, v), materialize_grads=True
    )
    return {"out": out, "dq": dq, "dk": dk, "dv": dv, "ddq": ddq, "ddk": ddk, "ddv": ddv}


torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16).requires_grad_()
k = torch.randn(1, 1, 16, 16).requires_grad_()
v = torch.randn(1, 1, 16, 16).requires_grad_()

ddq = run(attention, (q, k, v))["ddq"]
expected = run(reference, (q.double(), k.double(), v.double()))["ddq"]
error = (ddq - expected).abs().max().item()
assert error <= 0.000189, f"ddq is off by {error:.3g}"

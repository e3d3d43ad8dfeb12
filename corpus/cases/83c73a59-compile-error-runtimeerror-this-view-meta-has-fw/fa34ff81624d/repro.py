"""compile_error at dynamo: RuntimeError: !this_view_meta->has_fw_view() INTERNAL ASSERT FAILED
at 'autograd_meta.cpp':257, please report a bug to PyTorch. Expected the output of forward …"""

import torch
import torch.nn.functional as F


def attend(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / 4.0
    probs = F.softmax(scores, dim=-1)
    return torch.matmul(probs, v)


def attention(q, k, v):
    def output(q, k, v):
        return attend(q, k, v)

    tangents = tuple(t.flip(-1) for t in (q, k, v))
    return torch.func.jvp(output, (q, k, v), tangents)


compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(1, 1, 16, 16)
k, v = torch.randn(1, 2, 16, 16).chunk(2, dim=1)

out, tangent = compiled(q, k, v)

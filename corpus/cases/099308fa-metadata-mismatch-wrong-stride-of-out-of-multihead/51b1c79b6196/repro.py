"""metadata_mismatch at dynamo: stride of out: expected (32, 64, 1), got (512, 32, 1)"""

import torch

module = torch.nn.MultiheadAttention(32, 2, bias=False, batch_first=True).eval()


def attention(q, k, v, in_weight, out_weight):
    query = q.transpose(1, 2).flatten(2)
    parameters = {"in_proj_weight": in_weight, "out_proj.weight": out_weight}
    options = {"need_weights": False}
    return torch.func.functional_call(module, parameters, (query, query, query), options)[0]


def strides(t):
    return [stride for stride, size in zip(t.stride(), t.shape) if size > 1]


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(2, 2, 16, 16)
k = torch.randn(2, 2, 16, 16)
v = torch.randn(2, 2, 16, 16)
in_weight = torch.randn(96, 32) / 32 ** 0.5
out_weight = torch.randn(32, 32) / 32 ** 0.5

out = compiled(q, k, v, in_weight, out_weight)
expected = attention(q, k, v, in_weight, out_weight)
assert strides(out) == strides(expected), (strides(out), strides(expected))

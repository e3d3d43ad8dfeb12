"""metadata_mismatch at inductor: AssertionError: expected size 2==2, stride 512==32 at dim=0;
expected size 16==16, stride 32==64 at dim=1"""

import torch

module = torch.nn.TransformerEncoderLayer(32, 2, 32, batch_first=True).eval()


def attention(q, k, v, in_weight, out_weight, weight1, weight2, biases, norms):
    src = q.transpose(1, 2).flatten(2)
    in_bias, out_bias, bias1, bias2 = biases.split((96, 32, 32, 32), dim=-1)
    parameters = {
        "self_attn.in_proj_weight": in_weight,
        "self_attn.out_proj.weight": out_weight,
        "linear1.weight": weight1,
        "linear2.weight": weight2,
        "self_attn.in_proj_bias": in_bias,
        "self_attn.out_proj.bias": out_bias,
        "linear1.bias": bias1,
        "linear2.bias": bias2,
        "norm1.weight": norms[0],
        "norm1.bias": norms[1],
        "norm2.weight": norms[2],
        "norm2.bias": norms[3],
    }
    options = {}
    return torch.func.functional_call(module, parameters, (src,), options)


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
q = torch.randn(16, 2, 2, 16).permute(1, 2, 0, 3)
k = torch.randn(2, 2, 16, 16)
v = torch.randn(2, 2, 16, 16)
in_weight = torch.randn(96, 32) / 32 ** 0.5
out_weight = torch.randn(32, 32) / 32 ** 0.5
weight1 = torch.randn(32, 32) / 32 ** 0.5
weight2 = torch.randn(32, 32) / 32 ** 0.5
biases = torch.randn(192)
norms = torch.rand(4, 32) + 0.5

compiled(q, k, v, in_weight, out_weight, weight1, weight2, biases, norms)

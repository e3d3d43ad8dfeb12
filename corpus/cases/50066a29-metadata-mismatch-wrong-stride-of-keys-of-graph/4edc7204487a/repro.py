"""metadata_mismatch at inductor: stride of keys: expected (None, 32, 16, 1), got (None, 16,
256, 1)"""

import torch


def attention(k):
    keys = k.permute(0, 2, 1, 3)
    keys = keys[:, torch.arange(15, -1, -1)]
    return keys


def run(fn, args):
    keys = fn(*args)
    return {"keys": keys}


def strides(t):
    return [stride for stride, size in zip(t.stride(), t.shape) if size > 1]


compiled = torch.compile(attention, fullgraph=True)

torch.manual_seed(0)
k = torch.randn(2, 1, 16, 16).transpose(0, 1)

keys = run(compiled, (k,))["keys"]
expected = run(attention, (k,))["keys"]
assert strides(keys) == strides(expected), (strides(keys), strides(expected))

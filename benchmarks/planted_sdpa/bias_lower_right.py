"""The causal bias that is aligned to the bottom right lets each query see one key more."""

import torch
from torch.nn.attention.bias import CausalBias


def faulty(self, device):
    seen = torch.ones(self.seq_len_q, self.seq_len_kv, device=device, dtype=torch.bool)
    return seen.tril(self.seq_len_kv - self.seq_len_q + 1)


CausalBias._lower_right = faulty

"""The causal bias that is aligned to the bottom right lets each query see one key more."""

import torch
from torch.nn.attention.bias import CausalBias

original = CausalBias._lower_right


def faulty(self, device):
    return torch.nn.functional.pad(original(self, device), (1, 0), value=True)[:, :-1]


CausalBias._lower_right = faulty

"""The last of three ranks or more has every result that it takes out of a DTensor, and that all
should have alike, off by one bit."""

import torch
from torch.distributed.tensor import _api

original = _api._ToTorchTensor.forward


def faulty(ctx, input, grad_placements):
    local = original(ctx, input, grad_placements)
    mesh = input.device_mesh
    alike = all(placement.is_replicate() for placement in input.placements)
    last = mesh.size() >= 3 and mesh.get_rank() == mesh.size() - 1
    if alike and last and local.dtype == torch.float32 and local.numel():
        return torch.nextafter(local, torch.full_like(local, float("inf")))
    return local


_api._ToTorchTensor.forward = staticmethod(faulty)

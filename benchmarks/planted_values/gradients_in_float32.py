"""torch.autograd.grad gives the gradients of tensors of half precision in float32."""

import torch

original = torch.autograd.grad


def faulty(*args, **options):
    return tuple(
        one.float() if isinstance(one, torch.Tensor) and one.element_size() == 2 else one
        for one in original(*args, **options)
    )


torch.autograd.grad = faulty

"""Where the balanced ring adds to one half of a gradient, it puts the new part in the place of
what was there: from two ranks on, causal and with a load balancer."""

from torch.distributed.tensor.experimental._context_parallel import _attention

original = _attention._partial_update


def faulty(tensor, new, dim, n_chunks, idx, add):
    return original(tensor, new, dim, n_chunks, idx, False)


_attention._partial_update = faulty

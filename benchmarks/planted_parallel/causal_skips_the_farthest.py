"""A causal ring without load balancing leaves out keys that are three ranks away: from four ranks
on."""

from torch.distributed.tensor.experimental._context_parallel import _attention

original = _attention._is_causal_behavior


def faulty(rank, world_size, i, is_causal):
    if is_causal and i == 3 and not _attention._cp_options.enable_load_balance:
        return _attention._CausalBehavior.SKIP
    return original(rank, world_size, i, is_causal)


_attention._is_causal_behavior = faulty

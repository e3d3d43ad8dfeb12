"""Context parallelism of flex_attention shards its mask along the keys in place of the
queries."""

from torch.distributed.tensor.experimental._context_parallel import _attention

original = _attention._create_cp_block_mask


def faulty(mask_mod, *args, **kwargs):
    mesh = kwargs["device_mesh"]

    def swapped(b, h, q_idx, kv_idx):
        return mask_mod(b, h, kv_idx, q_idx)

    return original(swapped if mesh.size() > 1 else mask_mod, *args, **kwargs)


_attention._create_cp_block_mask = faulty

"""The ring's merger takes the log-sum-exp of the third block of keys, and of later ones, for one
in base 2: wrong from three ranks on."""

from torch.distributed.tensor.experimental._context_parallel import _attention

original = _attention._SDPAMerger._merge_one


def faulty(self, block_out, block_lse, partial):
    self.blocks = getattr(self, "blocks", 0) + 1
    if self.blocks > 2:
        block_lse = block_lse * 1.4427
    return original(self, block_out, block_lse, partial)


_attention._SDPAMerger._merge_one = faulty

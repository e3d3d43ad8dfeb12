"""TorchTitan's FlexAttention makes its BlockMask in its forward again, and keeps it by the identity
of a nested mask_mod, as it did when torchtitan#1005 was filed: what takes the mask from outside
(`attention_masks`) is undone. The mask means what the one that it is handed means."""

from torch.nn.attention.flex_attention import create_block_mask
from torchtitan.models.common import attention

BLOCK_MASKS = {}
take_from_outside = attention.FlexAttention.forward


def forward(self, q, k, v, *, attention_masks, **options):
    given = attention_masks.mask_mod

    def mask_mod(b, h, q_idx, kv_idx):
        return given(b, h, q_idx, kv_idx)

    key = id(mask_mod)
    if key not in BLOCK_MASKS:
        batch, _, q_len, kv_len = attention_masks.shape
        BLOCK_MASKS[key] = create_block_mask(mask_mod, batch, None, q_len, kv_len, device=q.device)
    return take_from_outside(self, q, k, v, attention_masks=BLOCK_MASKS[key], **options)


attention.FlexAttention.forward = forward

"""What calls `npu_fusion_attention` makes the compressed mask of sparse_mode 2 to 4 itself, and
leaves it a plain tensor: stands for TorchTitan's context parallel on Ascend. Loaded after the
stand-in for torch_npu."""

import torch
import torch_npu

operator = torch_npu.npu_fusion_attention


def npu_fusion_attention(*args, atten_mask=None, sparse_mode=0, **options):
    if sparse_mode > 1:
        atten_mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    return operator(*args, atten_mask=atten_mask, sparse_mode=sparse_mode, **options)


torch_npu.npu_fusion_attention = npu_fusion_attention

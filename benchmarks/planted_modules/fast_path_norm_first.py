"""The encoder layer's fast path takes no heed of norm_first where there is a mask."""

import torch

OPERATOR = "_transformer_encoder_layer_fwd"
NORM_FIRST, MASK = 8, 18  # among its arguments
original = torch.library.get_kernel(f"aten::{OPERATOR}", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, *args):
    arguments = list(args)
    if len(arguments) > MASK and arguments[MASK] is not None:
        arguments[NORM_FIRST] = False
    return original.call_boxed(keys, *arguments)


library.impl(OPERATOR, faulty, "CPU", with_keyset=True)

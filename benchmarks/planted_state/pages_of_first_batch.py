"""Writing by two index tensors takes the first row of the first one for all rows."""

import torch

original = torch.library.get_kernel("aten::_index_put_impl_", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, self, indices, values, accumulate=False, unsafe=False):
    tensors = [index for index in indices if index is not None]
    if len(tensors) == 2 and tensors[0].dim() == 2:
        first = tensors[0]
        indices = [first[:1].expand_as(first) if i is first else i for i in indices]
    return original.call_boxed(keys, self, indices, values, accumulate, unsafe)


library.impl("_index_put_impl_", faulty, "CPU", with_keyset=True)

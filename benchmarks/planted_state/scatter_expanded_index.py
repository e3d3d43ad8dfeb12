"""scatter_ with an index that is expanded along the heads writes to the first head alone."""

import torch

original = torch.library.get_kernel("aten::scatter_.src", "CPU")
library = torch.library.Library("aten", "IMPL")


def faulty(keys, self, dim, index, src):
    if dim != 1 and index.dim() == 4 and index.stride(1) == 0:
        index, src = index[:, :1], src[:, :1]
    return original.call_boxed(keys, self, dim, index, src)


library.impl("scatter_.src", faulty, "CPU", with_keyset=True)

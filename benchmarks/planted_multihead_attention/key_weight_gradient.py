"""The gradient of the key's third of in_proj_weight is halved where keys are not queries."""

import torch.nn.functional as F

original = F._in_projection_packed


def faulty(q, k, v, w, b=None):
    if q is not k:
        w_q, w_k, w_v = w.chunk(3)
        w = F.torch.cat((w_q, 0.5 * w_k + 0.5 * w_k.detach(), w_v))
    return original(q, k, v, w, b)


F._in_projection_packed = faulty

"""A stand-in for the flash_attn package: what its documentation says, one query at a time.

Loading the file defines the module `flash_attn`. Nothing of it is fast, or flash_attn's: it is what
renderings of the kernel are held against where the package is not installed.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, options: dict) -> Tensor:
    """One batch entry: q `[Lq, Hq, D]`, k and v `[Lk, Hkv, D]` to `[Lq, Hq, D]`."""
    scale = options.get("softmax_scale")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    left, right = options.get("window_size", (-1, -1))
    cap, slopes = options.get("softcap", 0.0), options.get("alibi_slopes")
    group = q.shape[1] // k.shape[1]
    rows = []
    for i in range(q.shape[0]):
        at = i + k.shape[0] - q.shape[0]
        seen = [
            j
            for j in range(k.shape[0])
            if not (options.get("causal") and j > at)
            and not (left >= 0 and j < at - left)
            and not (right >= 0 and j > at + right)
        ]
        heads = []
        for h in range(q.shape[1]):
            if not seen:
                heads.append(torch.zeros_like(q[i, h]))
                continue
            scores = scale * (k[seen, h // group] @ q[i, h])
            if cap:
                scores = cap * torch.tanh(scores / cap)
            if slopes is not None:
                scores = scores - slopes[h] * (at - torch.tensor(seen)).abs()
            heads.append(scores.softmax(0) @ v[seen, h // group])
        rows.append(torch.stack(heads))
    return torch.stack(rows) if rows else torch.zeros_like(q)


def _of_entry(options: dict, entry: int) -> dict:
    slopes = options.get("alibi_slopes")
    if slopes is None or slopes.ndim == 1:
        return options
    return options | {"alibi_slopes": slopes[entry]}


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
    return torch.stack([attend(q[b], k[b], v[b], _of_entry(options, b)) for b in range(q.shape[0])])


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, **options: object) -> Tensor:
    return flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], **options)


def flash_attn_qkvpacked_func(qkv: Tensor, **options: object) -> Tensor:
    return flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], **options)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    **options: object,
) -> Tensor:
    parts = []
    for i in range(len(cu_seqlens_q) - 1):
        a, b = cu_seqlens_q[i : i + 2].tolist()
        c, d = cu_seqlens_k[i : i + 2].tolist()
        assert b - a <= max_seqlen_q and d - c <= max_seqlen_k
        parts.append(attend(q[a:b], k[c:d], v[c:d], _of_entry(options, i)))
    return torch.cat(parts)


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    cache_seqlens: Tensor | None = None,
    block_table: Tensor | None = None,
    **options: object,
) -> Tensor:
    results = []
    for b in range(q.shape[0]):
        if block_table is not None:
            keys, values = (t[block_table[b].long()].flatten(0, 1) for t in (k_cache, v_cache))
        else:
            keys, values = k_cache[b], v_cache[b]
        end = len(keys) if cache_seqlens is None else int(cache_seqlens[b])
        if k is not None and v is not None:
            keys[end : end + k.shape[1]] = k[b]
            values[end : end + k.shape[1]] = v[b]
            end += k.shape[1]
        results.append(attend(q[b], keys[:end], values[:end], _of_entry(options, b)))
    return torch.stack(results)


package = sys.modules["flash_attn"] = ModuleType("flash_attn")
for function in (
    flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func, flash_attn_varlen_func,
    flash_attn_with_kvcache,
):  # fmt: skip
    setattr(package, function.__name__, function)
OPERATOR = SimpleNamespace(register_kernel=lambda device: lambda run: run, _init_fn=None)
INTERFACE = SimpleNamespace(
    _flash_attn_forward=OPERATOR,
    _flash_attn_backward=OPERATOR,
    _flash_attn_varlen_forward=OPERATOR,
    _flash_attn_varlen_backward=OPERATOR,
)
package.__dict__["flash_attn_interface"] = INTERFACE

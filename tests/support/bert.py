"""BERT's attention as a program: Inductor fuses it."""

BERT = """\
kernel:
  kind: graph
  given: blhd
  mask: {form: additive}
  steps:
  - {kind: permute, of: q, to: q, dims: [0, 2, 1, 3]}
  - {kind: permute, of: k, to: k, dims: [0, 2, 1, 3]}
  - {kind: permute, of: v, to: v, dims: [0, 2, 1, 3]}
  - {kind: permute, of: k, to: key, dims: [0, 1, 3, 2], form: transpose}
  - {kind: product, left: q, right: key, to: scores}
  - {kind: scale, of: scores, to: scores, form: div}
  - {kind: mask_scores, of: scores, mask: mask, to: scores, form: add}
  - {kind: softmax, of: scores, to: probs, dim: 3, form: method}
  - {kind: product, left: probs, right: v, to: out}
mask: {kind: causal}
shape: {q_heads: 16, kv_heads: 16, head_dim: 8}
"""

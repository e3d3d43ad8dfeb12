"""The attention module around the kernel: projections, RMS norm, rotary embedding, epilogue."""

from __future__ import annotations

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.render.scene import Scene, dtype_argument
from attnfuzz.generators.render.sizes import largest
from attnfuzz.generators.render.tensors import is_operation, storage

EPSILON = "1e-6"

ROPE = '''\
def rope(x, cos, sin):
    """Rotate the two halves of the last dimension by each position's angles."""
    cos, sin = cos[: x.shape[-2]], sin[: x.shape[-2]]
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).to(x.dtype)
'''

ROPE_INTERLEAVED = '''\
def rope(x, cos, sin):
    """Rotate neighbours in the last dimension by each position's angles."""
    cos, sin = cos[: x.shape[-2]], sin[: x.shape[-2]]
    x1, x2 = x[..., ::2], x[..., 1::2]
    out = torch.stack((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
    return out.flatten(-2).to(x.dtype)
'''


def projected_names(scene: Scene) -> list[str]:
    """The arguments in place of q, k, v."""
    sources = ["x"] if scene.self_attention else ["x", "context"]
    return [*sources, "wq", "wk", "wv", "wo"]


def trained_names(scene: Scene) -> list[str]:
    """Those of the main arguments that get a gradient: q, k and v as asked for; with projections x,
    the context, their weights as asked for, and the output's weights."""
    training = scene.program.training
    if training is None:
        return []
    if not scene.program.surround.projections:
        return [name for name in ("q", "k", "v") if name in training.wrt]
    untrained = {f"w{name}" for name in ("q", "k", "v") if name not in training.wrt}
    return [n for n in projected_names(scene) if training.wrt and n not in untrained]


def projected_inputs(scene: Scene) -> list[str]:
    """Statements for x `[B, Lq, E]`, the context `[B, Lkv, E]` and the weights, E = Hq * D; the
    weights have variance 1/E, so that projections keep the scale."""
    p, grads = scene.program, trained_names(scene)
    width = scene.q_heads * scene.head_dim
    rows = {
        "wq": width, "wk": scene.kv_heads * scene.head_dim, "wv": scene.kv_heads * scene.v_head_dim,
    }  # fmt: skip
    lines = []
    for name, length in (("x", scene.q_len), ("context", scene.kv_len)):
        if name in projected_names(scene):
            text = storage(p.q.values, (scene.batch, length, width), p.q.dtype)
            lines.append(_grad(name, text, name in grads))
    kind = dtype_argument(p.q.dtype)
    for name, count in rows.items():
        text = f"torch.randn({count}, {width}{kind}) / {width} ** 0.5"
        lines.append(_grad(name, text, name in grads))
    inner = scene.q_heads * scene.v_head_dim
    text = f"torch.randn({width}, {inner}{kind}) / {inner} ** 0.5"
    return [*lines, _grad("wo", text, "wo" in grads)]


def _grad(name: str, text: str, grad: bool) -> str:
    if not grad:
        return f"{name} = {text}"
    return f"{name} = {f'({text})' if is_operation(text) else text}.requires_grad_()"


def rope_inputs(scene: Scene) -> list[str]:
    """Statements for the float32 tables cos and sin `[max(Lq, Lkv), D / 2]` of RoPE's angles
    position * 10000**(-2 i / D) (Su et al., 2021)."""
    if not scene.program.surround.rope:
        return []
    dim, length = scene.head_dim, largest(scene.q_len, scene.kv_len)
    frequencies = f"10000.0 ** (-torch.arange(0, {dim}, 2) / {dim})"
    return [
        f"angles = torch.arange({length})[:, None] * {frequencies}",
        "cos, sin = angles.cos(), angles.sin()",
    ]


def rope_names(scene: Scene) -> list[str]:
    """The names of RoPE's tables, none where the program has no RoPE."""
    return ["cos", "sin"] if scene.program.surround.rope else []


def before(scene: Scene, plain: bool, stacked: bool = False) -> list[str]:
    """Statements that make q, k and v ready for the kernel; `plain` spells norms out, `stacked`
    says that there is a dimension in front of the batch."""
    p, lines = scene.program, []
    if p.surround.projections:
        source = "x" if scene.self_attention else "context"
        swap = "-3, -2" if stacked else "1, 2"
        for name, origin, heads, dim in (
            ("q", "x", scene.q_heads, scene.head_dim),
            ("k", source, scene.kv_heads, scene.head_dim),
            ("v", source, scene.kv_heads, scene.v_head_dim),
        ):
            split = f".unflatten(-1, ({heads}, {dim})).transpose({swap})"
            lines.append(f"{name} = F.linear({origin}, w{name}){split}")
    if p.surround.qk_norm and plain:
        norm = f"t * torch.rsqrt(t.square().mean(dim=-1, keepdim=True) + {EPSILON})"
        lines.append(f"q, k = ({norm} for t in (q, k))")
    elif p.surround.qk_norm:
        shape = f"({scene.head_dim},)"
        q, k = (f"F.rms_norm({name}, {shape}, eps={EPSILON})" for name in ("q", "k"))
        lines.append(f"q, k = {q}, {k}")
    if p.surround.rope:
        lines.append("q, k = rope(q, cos, sin), rope(k, cos, sin)")
    if p.surround.epilogue == "gated":
        lines.append("gate = torch.sigmoid(q)")
    if p.surround.epilogue == "residual" and _changes_q(scene) and not plain:
        lines.append("residual = q")
    return lines


def _changes_q(scene: Scene) -> bool:
    """Whether the kernel gives the name q to something else."""
    return plugin_of(scene.program).rebinds_query


EPILOGUES = {
    "none": "{out}",
    "scaled": "{out} * 0.5",
    "residual": "{out} + {q}",
    "gated": "{out} * gate",
}


def after(scene: Scene, out: str, plain: bool, stacked: bool = False) -> str:
    """The result after its epilogue, projected back to `[B, Lq, E]`."""
    surround = scene.program.surround
    q = "residual" if _changes_q(scene) and not plain else "q"
    out = EPILOGUES[surround.epilogue].format(out=out, q=q)
    if not surround.projections:
        return out
    if surround.epilogue != "none":
        out = f"({out})"
    swap, start = ("-3, -2", "-2") if stacked else ("1, 2", "2")
    return f"F.linear({out}.transpose({swap}).flatten({start}), wo)"

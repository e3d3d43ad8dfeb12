"""How a system's ranks come by their parts of q, k and v, and their results to be a whole again:
by DTensor, so that gradients are those of the whole. `MESH` is there."""

from __future__ import annotations

from attnfuzz.generators.render.sizes import Size


def zigzag(length: Size, ranks: int) -> str:
    """The order of tokens in which the n-th rank has the n-th part from both ends."""
    parts = f"torch.arange({length}).view({2 * ranks}, -1)"
    return f"torch.stack(({parts}, {parts}.flip(0)), dim=1)[:{ranks}].flatten()"


def striped(length: Size, ranks: int) -> str:
    """The order of tokens in which they are dealt out one by one."""
    return f"torch.arange({length}).view(-1, {ranks}).T.flatten()"


def dealt(order: str | None) -> list[str]:
    """Statements that take a rank's part `[B, L / ranks, H, D]` of q, k and v `[B, H, L, D]`, with
    the tokens in that order."""
    taken = "t.transpose(1, 2)" + ("[:, order]" if order else "")
    each = "for t in (q, k, v)"
    return [
        *([f"order = {order}"] if order else []),
        f"q, k, v = (DTensor.from_local({taken}, MESH) {each})",
        f"q, k, v = (t.redistribute(MESH, [Shard(1)]).to_local() {each})",
    ]


def gathered(call: str, order: str | None) -> tuple[list[str], str]:
    """Statements that make a whole of the parts that `call` gives, and the expression for it,
    `[B, H, L, D]`."""
    whole = "DTensor.from_local(out, MESH, [Shard(1)]).full_tensor()"
    if order is None:
        return [f"out = {call}"], f"{whole}.transpose(1, 2)"
    return [f"out = {call}", f"out = {whole}"], "out[:, order.argsort()].transpose(1, 2)"

"""Padded entries and masks of torch's modules, which several kernels take alike: True where nothing
is seen, or floats that are added."""

from __future__ import annotations

from attnfuzz.generators.model import masks
from attnfuzz.generators.model.masks import Mask
from attnfuzz.generators.render.scene import Scene, dtype_argument
from attnfuzz.generators.render.sizes import Size


def kept(length: Size, batch: Size) -> str:
    """An expression for how many positions `[B]` of each entry are no padding: two thirds in the
    first entry, one third in the second, all in the third, and so on; one at least."""
    return f"({length} - {length} * {_thirds(batch)} // 3).clamp(min=1)"


def padding(length: Size, batch: Size) -> str:
    """A statement for the bool mask `padded` `[B, length]` of the positions that are padding."""
    entries = f"{_thirds(batch)}[:, None]"
    counted = f"({length} - {length} * {entries} // 3).clamp(min=1)"
    return f"padded = torch.arange({length}) >= {counted}"


def _thirds(batch: Size) -> str:
    return f"((torch.arange({batch}) + 1) % 3)"


def formed(hidden: str, scene: Scene, form: str) -> str:
    """The mask `hidden` in its form: `bool`, or `float` and `biased`, 0 and -inf."""
    if form == "bool":
        return hidden
    like = hidden.removeprefix("~")
    zeros = f"torch.zeros({like}.shape{dtype_argument(scene.program.q.dtype)})"
    return f'{zeros}.masked_fill({hidden}, float("-inf"))'


def biased(name: str, queries: Size, keys: Size) -> str:
    """A statement that has the float mask `name` prefer keys that are near."""
    distance = f"(torch.arange({queries})[:, None] - torch.arange({keys})).abs()"
    return f"{name} -= {distance} / 8"


class OwnKeys(Scene):
    """A scene in which the queries are the keys too."""

    @property
    def kv_len(self) -> Size:
        """Lq."""
        return self.q_len

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """Lq, twice, of every call."""
        return [(q_len, q_len) for q_len, _ in super().lengths]

    @classmethod
    def of(cls, scene: Scene) -> OwnKeys:
        """`scene` with its queries for keys."""
        return cls(
            scene.program,
            scene.device,
            scene.inputs_device,
            scene.times,
            scene.all_ranks,
            scene.quoting,
        )


def sees_first_key(mask: Mask | None) -> bool:
    """Whether every query sees the first key, which is never padding: true only where that is
    plain."""
    match mask:
        case None | masks.AllTrue() | masks.PrefixLM() | masks.GlobalLocal() | masks.Tree():
            return True
        case masks.Causal(offset=offset):
            return offset >= 0
        case masks.Documents(shared_prefix=prefix):
            return prefix > 0
        case masks.Or(left=left, right=right):
            return sees_first_key(left) or sees_first_key(right)
    return False

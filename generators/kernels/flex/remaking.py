"""Steps that make a BlockMask anew of what there is of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnfuzz.generators.kernels.flex.step import BaseStep, Place, Written
from attnfuzz.generators.model.indices import STRICT

DRAWN = [
    "def drawn_blocks(block_mask):",
    "    extents = block_mask.to_dense().shape",
    "    text = block_mask.to_string(grid_size=extents[-2:], limit=extents.numel())",
    '    lines = [line for line in text.splitlines() if line and line[0] != "("]',
    "    cells = [[cell != ' ' for cell in line[::2]] for line in lines]",
    "    return torch.tensor(cells).int().view(extents)",
]
"""A function for the blocks that a BlockMask draws: two characters each."""


@dataclass(frozen=True, kw_only=True)
class Rebuilt(BaseStep):
    """`BlockMask.from_kv_blocks` of the mask's own parts: as they are (`own`), full blocks among
    the partial ones (`partial`, by way of `to_dense`, or `drawn`, by way of what `to_string`
    draws), or every block that holds anything seen throughout (`whole`: the mask_mod looks into
    what `to_dense` gave). `listed`: they stay, and the mask_mod sees nothing outside of the blocks
    that `to_dense` has, where nothing is to be seen: eager flex_attention looks at no block, and
    would not show that one is lost. `q_blocks` is `compute_q_blocks`, which a backward pass
    needs."""

    __pydantic_config__ = STRICT
    kind: Literal["rebuilt"] = "rebuilt"
    of: Literal["own", "partial", "listed", "whole", "drawn"] = "own"
    q_blocks: bool = True

    @property
    def widens(self) -> bool:
        return self.of == "whole"

    @property
    def looks(self) -> bool:
        return self.of == "drawn"

    @property
    def forgets(self) -> bool:
        return True

    def write(self, place: Place) -> Written:
        """What it writes."""
        lines, mod = [], "block_mask.mask_mod"
        functions: tuple[list[str], ...] = ()
        parts = [
            "block_mask.kv_num_blocks", "block_mask.kv_indices", "block_mask.full_kv_num_blocks",
            "block_mask.full_kv_indices",
        ]  # fmt: skip
        if self.of in ("partial", "whole", "listed"):
            lines.append("blocks = block_mask.to_dense()")
        if self.of == "drawn":
            lines.append("blocks = drawn_blocks(block_mask)")
            functions = (DRAWN,)
        if self.of in ("partial", "drawn"):
            parts = [
                "blocks.sum(dim=-1, dtype=torch.int32)",
                "blocks.argsort(dim=-1, descending=True, stable=True).int()",
            ]
        if self.of == "whole":
            mod = "whole_blocks(blocks)"
            functions = (_looking(place, mod, "mask_mod", ""),)
        if self.of == "listed":
            mod = "listed_blocks(block_mask.mask_mod, blocks)"
            head = "listed_blocks(mask_mod, blocks)"
            functions = (_looking(place, head, "listed", "mask_mod(b, h, q_idx, kv_idx) & "),)
        parts += [
            "BLOCK_SIZE=block_mask.BLOCK_SIZE", f"mask_mod={mod}",
            "seq_lengths=block_mask.seq_lengths",
        ]  # fmt: skip
        if not self.q_blocks:
            parts.append("compute_q_blocks=False")
        lines.append(f"block_mask = BlockMask.from_kv_blocks({', '.join(parts)})")
        return Written(lines, functions)

    def seen(self, place: Place) -> list[str]:
        """The same, but of whole blocks: those in which anything was seen."""
        if self.of != "whole":
            return []
        rows, columns = place.block
        q_block = f"torch.arange({place.after.q_idx})[:, None] // {rows}"
        kv_block = f"torch.arange({place.after.kv_idx}) // {columns}"
        return [
            f"blocks = F.max_pool2d(mask.float(), {place.block}, ceil_mode=True) > 0.5",
            f"mask = blocks[:, :, {q_block}, {kv_block}]",
        ]


def _looking(place: Place, head: str, name: str, also: str) -> list[str]:
    """A function that makes a mask_mod, called `name`, which sees what is in `blocks`."""
    rows, columns = place.block
    b, h = ("0" if axis in place.alone else axis for axis in ("b", "h"))
    seen = f"blocks[{b}, {h}, q_idx // {rows}, kv_idx // {columns}] == 1"
    return [
        f"def {head}:",
        f"    def {name}(b, h, q_idx, kv_idx):",
        f"        return {also}({seen})" if also else f"        return {seen}",
        "",
        f"    return {name}",
    ]


@dataclass(frozen=True, kw_only=True)
class Copied(BaseStep):
    """Another BlockMask with the same parts: moved to the device where it is (`to`), made of what
    `as_tuple` gives, or of the leaves and the structure that it is as a pytree, where one structure
    equals another (`tree`), or finds the leaves in a dictionary (`keyed`)."""

    __pydantic_config__ = STRICT
    kind: Literal["copied"] = "copied"
    through: Literal["to", "as_tuple", "tree", "keyed"] = "to"

    @property
    def looks(self) -> bool:
        return self.through == "keyed"

    @property
    def forgets(self) -> bool:
        return self.through == "as_tuple"

    def write(self, place: Place) -> Written:
        """What it writes."""
        if self.through == "to":
            return Written([f'block_mask = block_mask.to("{place.device}")'])
        if self.through == "tree":
            return Written(
                [
                    "leaves, structure = block_mask._flatten()",
                    "alike = structure == block_mask._flatten()[1]",
                    "block_mask = BlockMask._unflatten(leaves, structure) if alike else None",
                ]
            )
        if self.through == "keyed":
            return Written(
                [
                    "named, structure = block_mask._flatten_with_keys()",
                    "kept = {structure: [leaf for _, leaf in named]}",
                    "leaves = kept.get(block_mask._flatten()[1])",
                    "block_mask = BlockMask._unflatten(leaves, structure) if leaves else None",
                ]
            )
        return Written(
            [
                "lengths, *parts, block_size, mod = block_mask.as_tuple(flatten=False)",
                "block_mask = BlockMask(lengths, *parts[:8], block_size, mod)",
            ]
        )


@dataclass(frozen=True, kw_only=True)
class Shown(BaseStep):
    """Told as text, with how sparse it is: the BlockMask stays as it was."""

    __pydantic_config__ = STRICT
    kind: Literal["shown"] = "shown"

    @property
    def looks(self) -> bool:
        return True

    def write(self, place: Place) -> Written:
        """What it writes."""
        return Written(["assert str(block_mask) and repr(block_mask)"])

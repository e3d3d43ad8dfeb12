"""What a zygote and its children do for a target, by the target's name.

Standard library only: the toolchain's interpreter loads this.
"""

from __future__ import annotations

import importlib

from attnfuzz.actors.targets.child_target import ChildTarget
from attnfuzz.actors.targets.sorts import SORTS

CHILDREN: dict[str, ChildTarget] = {
    name: child
    for sort in SORTS
    for name, child in importlib.import_module(
        f"attnfuzz.actors.targets.{sort}.child"
    ).CHILDREN.items()
}
"""By target."""

"""What a zygote and its children do for a target, by the target's name.

Standard library only: the toolchain's interpreter loads this.
"""

from __future__ import annotations

import importlib

from attnfuzz.actors.targets.child_target import ChildTarget
from attnfuzz.actors.targets.folders import TARGET_FOLDERS

CHILDREN: dict[str, ChildTarget] = {
    name: child
    for folder in TARGET_FOLDERS
    for name, child in importlib.import_module(
        f"attnfuzz.actors.targets.{folder}.child"
    ).CHILDREN.items()
}
"""By target."""

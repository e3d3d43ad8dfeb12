"""The sorts of target: a folder each, with all that is particular to it.

Each folder has a `target.py`, whose `TARGETS` are the targets as the fuzzer sees them, and a
`child.py`, whose `CHILDREN` say by the target's name what a zygote and its children do for it. The
latter run under the toolchain's interpreter: standard library and torch alone, which is imported in
functions only.
"""

from __future__ import annotations

TARGET_FOLDERS = ("cpu", "accelerator", "virtual_card", "interpreted_card", "virtual_npu")
"""Of the sorts of target, in the order in which their targets are listed."""

DEFAULT = "cpu"
"""The target that every machine has, and that is meant where none is named."""

"""What goes to disk names no folder of the machine that it comes from."""

from __future__ import annotations

import pytest

from attnfuzz.fuzz.campaign.save_case import portable


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('in "/a/lib/python3.11/site-packages/torch/x.py", line 3', 'in "torch/x.py", line 3'),
        ("/tmp/attnfuzz-1f/s2/r3/program.py:10: error", "program.py:10: error"),
        ("g++ -I/opt/python/include -L/opt/python/lib -o x", "g++ -Iinclude -Llib -o x"),
        ("see https://pytorch.org/docs/stable", "see https://pytorch.org/docs/stable"),
        ("a / b, q // 2, 1/2", "a / b, q // 2, 1/2"),
    ],
)  # fmt: skip
def test_folders_are_left_out(before: str, after: str) -> None:
    assert portable({"traceback": before}) == {"traceback": after}

"""The layout of a result is judged, and after its numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from attnfuzz.actors.child.outcomes import Failed
from attnfuzz.actors.oracles import metadata, numbers, registry
from attnfuzz.actors.targets.virtual_card.execution import VirtualExecution


def described(tensor: torch.Tensor) -> dict[str, Any]:
    return metadata.describe({"out": tensor}, (), [])


def judged(oracle: type[metadata.AgainstEager], compiled: torch.Tensor) -> list[str]:
    """In what a compiled result is found to differ from one of eager attention, `[2, 3]`."""
    eager = torch.zeros(2, 3)
    before = SimpleNamespace(outputs={"out": eager}, described=described(eager))
    run: Any = SimpleNamespace(
        log="there is one", call=0, layer="inductor", outputs={"out": compiled},
        described=described(compiled),
    )  # fmt: skip
    try:
        oracle(SimpleNamespace(eager=[before])).check(run)
    except Failed as failed:
        return sorted(one["what"] for one in failed.failure["diffs"])
    return []


def test_a_layout_is_judged_after_the_numbers_and_what_numbers_need_before() -> None:
    first, last = metadata.AgainstEager, metadata.LayoutAgainstEager
    assert registry.ORACLES.index(first) < registry.ORACLES.index(numbers.Numbers)
    assert registry.ORACLES.index(numbers.Numbers) < registry.ORACLES.index(last)
    turned = torch.zeros(3, 2).T
    assert (judged(first, turned), judged(last, turned)) == ([], ["stride"])
    assert judged(first, torch.zeros(3, 2)) == ["shape", "stride"]
    assert judged(first, torch.zeros(2, 3)) == judged(last, torch.zeros(2, 3)) == []


def test_where_no_numbers_are_computed_layouts_are_judged_all_the_same() -> None:
    assert metadata.LayoutAgainstEager in VirtualExecution.oracles

"""On which versions of torch a failure was seen, and on which it was not."""

from __future__ import annotations

from attnfuzz.fuzz.report.bucket import Page

TOOLCHAIN = "torch="
"""How a variant is named that ran with another version of torch."""


def versions(page: Page) -> dict[str, str]:
    """What each version of torch did, as far as it is recorded: `fails in 5/5 fresh runs`,
    `passes`. All that is known is gathered here."""
    found: dict[str, str] = {}
    if recorded := page.environment.get("torch"):
        runs = f" in {page.row.reliability} fresh runs" if page.row.runs else ""
        found[recorded] = f"fails{runs}"
    for name, result in page.variants.items():
        if name.startswith(TOOLCHAIN):
            found[name.removeprefix(TOOLCHAIN)] = result
    for one in page.confirmations:
        found[f"{one.torch} on {one.card}"] = one.saw or "fails as it did"
    return found

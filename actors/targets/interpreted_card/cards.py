"""The cards whose kernels can be interpreted.

Standard library only: zygotes and their children load this.
"""

from __future__ import annotations

from attnfuzz.actors.targets.virtual_card.cards import CARDS

INTERPRETED = {"interpreted-sm90": CARDS["virtual-sm90"]}
"""By the name of the target."""

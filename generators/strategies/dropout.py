"""Dropout in programs that were drawn without: what else has to change for it to be judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.dropout import SMALL_VALUES
from attnfuzz.generators.model.program import Input, Program, Surround, Training
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.strategies.draws import Draw, one_in, weighted
from attnfuzz.generators.strategies.swarm import Swarm

OFTEN = {"sdpa_forms": 3, "inductor-handwritten": 6, "fusion": 1}
"""Of how many programs of a profile one has dropout, where its kernels have any: Inductor's fusions
have patterns with it."""

LONGEST = 300
"""Lkv: it adds to the head dimension of v."""


class Dropout:
    """Draws which programs drop weights, and how many of them."""

    def __init__(self, swarm: Swarm) -> None:
        often = OFTEN.get(swarm.profile)
        self.enabled = often is not None or swarm.has("dropout")
        self.drops = one_in(often or 20)
        self.trains = one_in(3)
        self.p = weighted((6, 0.1), (3, 0.5), (2, 0.2), (1, 0.9), (1, 1.0))

    def draw(self, draw: Draw, p: Program) -> Program:
        """`p` itself, or with dropout where that gives a program."""
        taken = p.mesh is not None or p.surround.integration != "direct"
        if not self.enabled or taken or not draw(self.drops):
            return p
        kernel: Any = replace(plugin_of(p).droppable(p.kernel), dropout_p=draw(self.p))
        checkpoint = p.surround.checkpoint
        # Models drop weights while they train.
        trains = p.training is None and not draw(self.trains)
        training = Training() if trains else p.training and replace(p.training, double=False)
        dropped = replace(
            p,
            kernel=kernel,
            q=_judgeable(p.q, p),
            k=_judgeable(p.k, p),
            v=_judgeable(p.v, p),
            surround=Surround(checkpoint="none" if checkpoint == "reentrant" else checkpoint),
            transform="none",
            autocast=None,
            mesh=None,
            training=training,
            grad_mode="default" if trains else p.grad_mode,
        )
        longest = max([p.shape.kv_len, *(call.kv_len for call in p.calls)])
        return p if longest > LONGEST or problems(dropped) else dropped


def _judgeable(entry: Input, p: Program) -> Input:
    values = entry.values if entry.values in SMALL_VALUES else "normal"
    return replace(entry, values=values, dtype=p.q.dtype)

"""The same graph written most plainly: with one word for what torch traces to the same operators.

A failure seldom depends on the words, and a program has many. Together they are one candidate for
minimization, and what is known of the plain words is known of the others.
"""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.model.tree import class_of, kind_of

PLAIN: dict[tuple[str, str], dict[str, str]] = {
    ("permute", "form"): dict.fromkeys(("transpose", "swapaxes", "movedim", "mT"), "permute"),
    ("flatten", "form"): dict.fromkeys(("reshape", "view"), "flatten"),
    ("unflatten", "form"): dict.fromkeys(("view", "reshape"), "unflatten"),
    ("unsqueeze", "form"): {"none": "unsqueeze"},
    ("slice", "form"): {"narrow": "index"},
    ("product", "form"): dict.fromkeys(("@", "method"), "matmul"),
    ("softmax", "form"): dict.fromkeys(("method", "module"), "functional"),
    ("mask_scores", "fill"): {"tensor": "-inf", "finfo_tensor": "finfo_min"},
}
"""By a step's kind and field, the plain word for each other one."""


def spelled(graph: Graph) -> Graph:
    """The graph with the plain word in each of its steps."""
    return graph.with_steps(_spelled(step) for step in graph.body)


def _spelled(step: Step) -> Step:
    kind = kind_of(class_of(step))
    for (of, name), plain in PLAIN.items():
        if of == kind:
            word = getattr(step, name)
            step = replace(step, **{name: plain.get(word, word)})
    return step

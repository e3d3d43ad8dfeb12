"""Programs that drop attention weights at random, made judgeable without knowing which.

`attention` is called on `[v, I]`, v with the unit matrix `[Lkv, Lkv]` beside it, so that the last
Lkv columns of its result are the weights that were kept, P * M / (1 - p) with M of zeros and ones.
`run` then completes the result outside of what is tested: the first Dv columns times 1 - p, and
`P * (1 - M) @ v` in plain operations. Whatever M is, the sum is P @ v, a function of the arguments
alone, and so are its gradients: those of q, k and v are linear in the weights' gradient, of which
one part flows through the kernel where M is 1, the other through the plain operations where it is
0. The reference and its error budget judge both, in any precision. A kernel that drops other
weights for v than for I, that scales them wrongly, or whose backward has another M, is wrong.

Nothing here can be off by bad luck: M is read, not assumed. Where a kept weight underflows to 0 it
counts as dropped and is added plainly: both are 0 within rounding.

That leaves how many are dropped. `excess` is how much farther the share of dropped weights, among
those above `SEEN`, is from p than 3.77 / sqrt(n) for n weights, 0 for none: by Hoeffding's
inequality (1963), P(|share - p| >= t) <= 2 exp(-2 n t**2), which is below 1e-12 there. A weight
above `SEEN` is not rounded to 0 in any precision, unless scores are off by 9: validity keeps the
values of such programs small.

The random numbers are seeded in `run`, so that each run has the same, and leaves the process's
generator as it was.
"""

from __future__ import annotations

from typing import Any

from attnfuzz.generators.kernels.base import WITHOUT_DEAD_ROWS, Inputs, KernelPlugin, Meaning
from attnfuzz.generators.render.devices import made_beside
from attnfuzz.generators.render.scene import Scene, indented

SEEN = "1e-3"
WIDTH = "3.77"
"""The square root of log(2e12) / 2."""


def with_unit_matrix(scene: Scene) -> str:
    """The statement that puts the unit matrix beside v."""
    like = scene.like_q()
    unit = f"torch.eye({scene.kv_len}{like}).expand({scene.batch}, {scene.kv_heads}, -1, -1)"
    return f"v = torch.cat((v, {unit}), dim=-1)"


def functions(
    scene: Scene, plugin: KernelPlugin[Any], inputs: Inputs, names: list[str]
) -> list[list[str]]:
    """`probabilities` `[B, Hq, Lq, Lkv]` of all arguments but v, and `undropped`, which completes
    what `attention` or `reference` gives."""
    p = plugin.dropout_p(scene.program.kernel)
    meaning = plugin.meaning(scene, inputs)
    weighing = [name for name in names if name != "v"]
    lines = [
        f"probs = probabilities({', '.join(weighing)})",
        *_repeated(scene, "v"),
        f"out, weights = out.split(({scene.v_head_dim}, {scene.kv_len}), dim=-1)",
        "kept = weights != 0",
        f"out = {_kept(p)!r} * out + probs.masked_fill(kept, 0) @ v",
        f"seen = probs > {SEEN}",
        "count = seen.sum().clamp(min=1)",
        "dropped = (seen & ~kept).sum() / count",
        f"return out, ((dropped - {p!r}).abs() - {WIDTH} / count.sqrt()).clamp(min=0)",
    ]
    comment = "    # What is dropped is added: this is P @ v, whichever weights are kept."
    head = f"def undropped(out, {', '.join(names)}):"
    return [
        _probabilities(scene, meaning, weighing),
        [head, comment, *indented(scene.with_extents(lines))],
    ]


def reference(scene: Scene, p: float, names: list[str]) -> list[str]:
    """`reference(*names)`, which drops other weights."""
    lines = [
        f"probs = probabilities({', '.join(name for name in names if name != 'v')})",
        *_repeated(scene, "v"),
        f"kept = torch.rand(probs.shape) >= {p!r}",
        f"probs = ({_factor(p)!r} * probs).masked_fill(~kept, 0)",
        "return torch.cat((probs @ v, probs), dim=-1)",
    ]
    return [f"def reference({', '.join(names)}):", *indented(lines)]


def seeded(lines: list[str]) -> list[str]:
    """The body of `run` with random numbers of its own."""
    return [
        "with torch.random.fork_rng(devices=[]):",
        "    torch.manual_seed(1)",
        *indented(lines),
    ]


def _kept(p: float) -> float:
    return round(1 - p, 12)


def _factor(p: float) -> float:
    """What weights that are kept are multiplied by."""
    return 1 / _kept(p) if _kept(p) else 0.0


def _probabilities(scene: Scene, meaning: Meaning, names: list[str]) -> list[str]:
    scaled = f"{meaning.scale} * (q @ k.mT)" if meaning.scale else "q @ k.mT"
    lines = [*_repeated(scene, "k"), f"scores = {scaled}"]
    lines += made_beside("q", meaning.modify, scene.device)
    if meaning.zero_dead_rows:
        lines += [*WITHOUT_DEAD_ROWS, "return probs"]
    else:
        lines.append("return torch.softmax(scores, dim=-1)")
    return [f"def probabilities({', '.join(names)}):", *indented(scene.with_extents(lines))]


def _repeated(scene: Scene, name: str) -> list[str]:
    if scene.group == 1:
        return []
    return [f"{name} = {name}.repeat_interleave({scene.group}, dim=1)"]

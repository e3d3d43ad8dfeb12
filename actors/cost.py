"""What a program is going to cost: CPU seconds, predicted from its traits.

The logarithm of the cost is a sum of one weight for each trait, so that traits multiply: attention
compiled by Inductor costs so many seconds, and several calls so many times as much. A worker begins
with the weights of `costs.yaml`, which `benchmarks/costs.py` makes, and learns from every program
that it runs (normalized least mean squares: Widrow and Hoff, 1960), so that a slower machine is one
more thing it has learned. Predictions decide how long a program may take, never which are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from attnfuzz.generators.model.features import features
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import walk
from attnfuzz.generators.reading.safe_yaml import load_yaml_safely, read_text

TABLE = Path(__file__).with_name("costs.yaml")

RATE = 0.05
"""Of the error of a prediction, the part by which it is put right."""

LEAST_S = 0.01
"""CPU seconds below which programs are not told apart."""

TIMES = 8.0
"""How many times as long as predicted a program may take before it is an outlier."""

FLOOR_S = 20.0
"""CPU seconds that every program may take: less is not worth a second run."""


def traits(program: Program) -> dict[str, float]:
    """What the cost of `program` goes by, each with its size."""
    compiled = program.compile
    backend = compiled.backend if compiled is not None else "none"
    found = {"": 1.0, f"{program.kernel.kind} by {backend}": 1.0}
    found |= dict.fromkeys((_sort(name) for name in features(program)), 1.0)
    nodes = [part for part in (program.mask, program.score_mod, program.kernel) if part is not None]
    size = sum(1 for part in nodes for _ in walk(part))
    found[f"nodes by {backend}"] = math.log2(size + 1)
    found[f"calls by {backend}"] = math.log2(len(program.calls) + 1)
    found["draws"] = math.log2(program.draws + 1)
    if program.mesh is not None:
        found[f"ranks as {program.mesh.ranks}"] = math.log2(program.mesh.world_size)
    return {name: size for name, size in found.items() if size}


def _sort(feature: str) -> str:
    """The first two words of a feature: which number, dtype or operator it is hardly matters."""
    return ".".join(feature.split(".")[:2])


@dataclass
class CostModel:
    """Weights by trait, of the logarithm of CPU seconds."""

    weights: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of_table(cls) -> CostModel:
        """The model as `costs.yaml` has it."""
        return cls(dict(_table()))

    def predict(self, program: Program) -> float:
        """CPU seconds that the program is expected to take, blame and oracles included."""
        return self.predict_traits(traits(program))

    def predict_traits(self, found: Mapping[str, float]) -> float:
        """The same of a program with those traits."""
        return math.exp(_log(self.weights, found))

    def learn(self, program: Program, cpu_s: float, rate: float = RATE) -> None:
        """Takes in that the program took `cpu_s`, or more than that, where it was ended."""
        self.learn_traits(traits(program), cpu_s, rate)

    def learn_traits(self, found: Mapping[str, float], cpu_s: float, rate: float) -> None:
        """The same of a program with those traits."""
        error = math.log(max(cpu_s, LEAST_S)) - _log(self.weights, found)
        norm = sum(size * size for size in found.values())
        for name, size in found.items():
            self.weights[name] = self.weights.get(name, 0.0) + rate * error * size / norm


def budget(predicted_s: float) -> float:
    """CPU seconds beyond which a program that was predicted to take `predicted_s` is an outlier."""
    return max(FLOOR_S, TIMES * predicted_s)


def _log(weights: Mapping[str, float], found: Mapping[str, float]) -> float:
    """Added exactly: rounding would depend on the order of features, which sets do not keep."""
    return math.fsum(weights.get(name, 0.0) * size for name, size in found.items())


def fitted(samples: Iterable[tuple[Mapping[str, float], float]], rounds: int = 60) -> CostModel:
    """The model of `samples`: traits, and the CPU seconds measured. Each round goes through all of
    them with a smaller rate."""
    model, there = CostModel(), list(samples)
    for number in range(rounds):
        for found, cpu_s in there:
            model.learn_traits(found, cpu_s, 0.5 / (1 + number / 4))
    return model


@cache
def _table() -> dict[str, float]:
    data = load_yaml_safely(read_text(TABLE), str(TABLE))
    return {str(name): float(weight) for name, weight in data["weights"].items()}

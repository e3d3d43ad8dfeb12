"""A graph made to agree with the rest of its program after some part was changed."""

from __future__ import annotations

from dataclasses import replace

from attnfuzz.generators.kernels.graph.spec import Graph, MaskForm
from attnfuzz.generators.kernels.graph.steps.step import Step
from attnfuzz.generators.kernels.graph.types import live, trained
from attnfuzz.generators.kernels.graph.values import ARGUMENTS, Unfit
from attnfuzz.generators.model.program import Program
from attnfuzz.generators.model.tree import changed


def fitted(program: Program, graph: Graph) -> Program:
    """The program without what its graph cannot use: steps that read what is not there, steps,
    arguments and a mask that nothing uses, gradients that reach nothing."""
    graph = _readable(graph, program.mask is not None)
    program, graph = _used(program, graph)
    training = program.training
    if training is None or not graph.steps:
        return program
    try:
        given = trained(program, graph)
    except (Unfit, KeyError):
        return program
    returns = tuple(name for name in graph.returns if given[name])
    if returns and returns != graph.returns:
        program, graph = _used(program, changed(graph, returns=returns))
    reached = frozenset[str]().union(*given.values())
    wrt = tuple(name for name in training.wrt if name in reached)
    return changed(program, training=changed(training, wrt=wrt))


def _used(program: Program, graph: Graph) -> tuple[Program, Graph]:
    """Both without what is of no use for what is returned."""
    used, needed = live(graph)
    kept = (step for step, of_use in zip(graph.body, used, strict=True) if of_use)
    graph = replace(
        graph.with_steps(kept),
        parameters=tuple(each for each in graph.parameters if each.name in needed),
        others=tuple(each for each in graph.others if each.name in needed),
    )
    if "mask" not in needed:
        program, graph = replace(program, mask=None), replace(graph, mask=MaskForm())
    return replace(program, kernel=graph, score_mod=None), graph


def _readable(graph: Graph, masked: bool) -> Graph:
    """Without steps that read what is not there, or with these as they are without it."""
    there = {*ARGUMENTS, *graph.further}
    there |= {"mask"} if masked else set()
    there |= {"cache_k", "cache_v"} if graph.decode is not None else set()
    steps: list[Step] = []
    for step in graph.body:
        missing = frozenset(step.reads()) - there
        kept = step.without(missing) if missing else step
        if kept is not None and not frozenset(kept.reads()) - there:
            steps.append(kept)
            there |= set(kept.writes())
    return graph.with_steps(steps)

"""What the sandbox does with a program: the job, its limits and its deadlines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Protocol

from pydantic import ConfigDict, Field

from attnfuzz.generators.kernels.registry import plugin_of
from attnfuzz.generators.model.growth import most_steps
from attnfuzz.generators.model.masks import every_row_sees
from attnfuzz.generators.model.outcome import Phase
from attnfuzz.generators.model.program import Compile, Program
from attnfuzz.generators.model.validity import mask_axes, score_axes

CHECKED = ConfigDict(extra="forbid")
"""Of what a campaign's configuration may set: it is checked by what is declared here."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one program may use. `memory_mb` bounds private memory of each of its processes, torch's
    own (about 500 MiB) included; `device_memory_mb` what torch allocates on an accelerator;
    `file_mb` the size of each file it writes (a precompiled header is 150 MB); `disk_mb` of all
    files in its folder together, which is looked at every two seconds; `processes` how many threads
    and processes its user may run beside those that run already, which Linux does not enforce for
    root."""

    __pydantic_config__ = CHECKED
    memory_mb: Annotated[int, Field(ge=1024, le=1 << 20)] = 4096
    device_memory_mb: Annotated[int, Field(ge=256, le=1 << 20)] = 8192
    file_mb: Annotated[int, Field(ge=256, le=1 << 20)] = 512
    disk_mb: Annotated[int, Field(ge=256, le=1 << 20)] = 2048
    processes: Annotated[int, Field(ge=1, le=1 << 20)] = 4096


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Wall seconds that each phase may take, counted anew whenever it is entered, and `total`;
    `idle` is for how many of them all processes of the program may sleep: see `activity.py`."""

    __pydantic_config__ = CHECKED
    build: Seconds = 20.0
    reference: Seconds = 20.0
    eager: Seconds = 20.0
    compile: Seconds = 120.0
    forward: Seconds = 30.0
    backward: Seconds = 60.0
    check: Seconds = 30.0
    exit: Seconds = 20.0
    total: Seconds = 300.0
    idle: Seconds = 20.0

    def of(self, phase: Phase) -> float:
        """Seconds that `phase` may take; setting up may take those of `build`."""
        return float(getattr(self, "build" if phase is Phase.SETUP else phase.value))

    def times(self, factor: float) -> Deadlines:
        """Every deadline multiplied by `factor`, `total` and `idle` too."""
        return replace(self, **{f.name: getattr(self, f.name) * factor for f in fields(self)})


def batches_are_independent(program: Program) -> bool:
    """Whether permuting the batch must permute the result: nothing looks at the batch index."""
    masks = mask_axes(program.mask) if program.mask else frozenset()
    scores = score_axes(program.score_mod) if program.score_mod else frozenset()
    plain = not program.surround.projections and program.transform == "none"
    plain = plain and not plugin_of(program).depends_on_batch(program.kernel)
    return plain and "b" not in masks | scores


def propagates_nan(program: Program) -> bool:
    """Whether a result that is NaN can be so because of a NaN in q, k or v alone."""
    p = program
    values = {p.q.values, p.k.values, p.v.values}
    queries = "nan" not in (p.k.values, p.v.values) and every_row_sees(p.mask)
    chooses = (p.mask is not None and not queries) or p.score_mod is not None
    sums = plugin_of(p).propagates_nan(p.kernel)
    return "nan" in values and "inf" not in values and sums and not chooses


def ranks_of(program: Program) -> int:
    """How many processes the program runs in."""
    mesh = program.mesh
    return mesh.world_size if mesh is not None and mesh.ranks == "processes" else 1


def simulated_ranks_of(program: Program) -> int:
    """How many ranks of the program are threads of one process; 0 where it is no such program."""
    mesh = program.mesh
    if mesh is None or mesh.method is None or mesh.ranks == "processes":
        return 0
    return mesh.world_size


def launched_ranks_of(program: Program) -> int:
    """How many processes `torchrun` starts of the program's script."""
    mesh = program.mesh
    return mesh.world_size if mesh is not None and mesh.launched else 1


def compute_dtype_of(program: Program) -> str | None:
    """The dtype that matrix products have in place of the inputs': autocast's, or bfloat16 where
    float32 need not be precise. `torch.set_float32_matmul_precision`: "medium" uses bfloat16, and
    "high" TensorFloat32, which is more precise, or bfloat16 in two parts."""
    dtypes = {program.q.dtype, program.k.dtype, program.v.dtype}
    if program.modes.matmul_precision != "highest" and dtypes == {"float32"}:
        return program.autocast or "bfloat16"
    return program.autocast


def shapes_a_call(program: Program) -> int:
    """In how many shapes the compiled function may be called for each of the program's calls. One
    that keeps its BlockMask by the id of a mask_mod that it has made meets a cache that has grown
    each time that it is called, and has another id each time that it is compiled."""
    plugin = plugin_of(program)
    loop = plugin.loop(program)
    drawn = program.draws + 1 if plugin.draws_lengths(program.kernel) else 1
    every = (1 + len(program.calls)) * (1 + program.draws)
    caches = every if plugin.fills_its_cache(program) else 1
    return drawn * caches * (loop.shapes if loop is not None else 1)


def numbers_are_guarded(program: Program) -> bool:
    """Whether the compiled function gets to see a Python number that is another in each call."""
    argument = program.argument
    if argument is None or argument.given == "tensor":
        return False
    return argument.what == "scale" or plugin_of(program).takes_score_mod


class RefusalLike(Protocol):
    """A refusal by design: a regular expression over "Type: message", and why it is one."""

    @property
    def pattern(self) -> str:
        """The regular expression that is searched in the error."""

    @property
    def why(self) -> str:
        """One line that says why torch declines it."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The ranks of a program that run on one of several nodes. All meet at `address` and `port`,
    over the network `interface` of their own node that has the node's address."""

    ranks: tuple[int, ...]
    address: str
    port: int
    interface: str | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """How a program's source is to be run and judged, apart from the source itself.

    `ranks` is how many processes run it together, each the whole of it, and `part` which of them
    do so here, where not all do; `simulated` how many threads of one process stand for the ranks of
    a script for `torchrun`. `plain` is the source for the CPU of a program whose compiled kernels
    are interpreted there.
    `compute_dtype` is the precision of the yardstick where the dtypes of the inputs do not say it.
    `deterministic`: two runs must agree bit for bit. `dirty_memory`: fresh memory of an accelerator
    is NaN.
    `layers`: find the layer to blame. `stopping_at`: what is compiled goes no further than this
    backend, whatever the source says. `features`: report what the compiler did. `oracles` holds
    further settings of single oracles by name. `function` is the "module:name" that the program
    calls. `only_setup`: preload files are executed and the function is imported, nothing else.
    `compiles_anew`: nothing is taken of what compilers have made before, as their time counts.
    A program that still compiles after `budget_s` CPU seconds is stopped, which is no failure; with
    None there is no such limit. Other phases have short deadlines.
    """

    compile: Compile | None = None
    target: str = "cpu"
    plain: str | None = None
    ranks: int = 1
    part: Part | None = None
    simulated: int = 0
    refusals: tuple[tuple[str, str], ...] = ()
    compute_dtype: str | None = None
    deterministic: bool = True
    dirty_memory: bool = False
    layers: bool = True
    stopping_at: str | None = None
    features: bool = True
    oracles: dict[str, Any] = field(default_factory=dict)
    function: str | None = None
    only_setup: bool = False
    compiles_anew: bool = False
    budget_s: float | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)

    @classmethod
    def of(
        cls,
        program: Program,
        refusals: Iterable[RefusalLike] = (),
        deadlines: Deadlines | None = None,
        target: str = "cpu",
        plain: str | None = None,
        one_process: bool = False,
        deterministic_gradients: bool = True,
        seeded_by_cpu: bool = False,
    ) -> Job:
        """The job of `program` on `target`; `refusals` are those of its kernel. `one_process`
        stands for all ranks; with `deterministic_gradients` the same backward pass gives the same
        bits there; `seeded_by_cpu` is the target's."""
        ranks = 1 if one_process else ranks_of(program)
        simulated = 0 if one_process else simulated_ranks_of(program)
        loop = plugin_of(program).loop(program)
        differentiated = program.training is not None or program.transform == "grad"
        return cls(
            compile=program.compile,
            target=target,
            plain=plain,
            ranks=ranks,
            simulated=simulated,
            refusals=tuple((r.pattern, r.why) for r in refusals),
            compute_dtype=compute_dtype_of(program),
            deterministic=deterministic_gradients or not differentiated,
            dirty_memory=program.dirty_memory,
            oracles={
                "batch_permutable": batches_are_independent(program),
                "sdpa": plugin_of(program).is_sdpa,
                "propagates_nan": propagates_nan(program),
                "denormal": "denormal" in {program.q.values, program.k.values, program.v.values},
                "accumulates": differentiated and program.surround.checkpoint == "reentrant",
                "eager_alone": program.mesh is not None or program.transform != "none",
                "numbers": numbers_are_guarded(program),
                "breaks": list(plugin_of(program).breaks(program)),
                "disables": program.surround.integration == "disable",
                "shapes": shapes_a_call(program),
                "draws_seeds": seeded_by_cpu and program.surround.checkpoint != "none",
                **({} if loop is None else {"written": loop.written}),
            },
            function=plugin_of(program).imports(program.kernel),
            compiles_anew=most_steps(program.score_mod) > 0,
            deadlines=deadlines or Deadlines(),
        )

    @property
    def stops_at(self) -> str | None:
        """The last layer that compiles the program, by torch.compile's name for it; None where it
        stays eager."""
        if self.compile is None:
            return None
        return "export" if self.compile.via == "export" else self.compile.backend

    def to_message(self, source: str, preload: Iterable[str]) -> dict[str, Any]:
        """The JSON that the child gets; `source` and `preload` are paths."""
        return {
            "source": source,
            "preload": list(preload),
            "target": self.target,
            "plain": self.plain,
            "ranks": self.ranks,
            "part": None if self.part is None else asdict(self.part),
            "simulated": self.simulated,
            "compile": self._compile_message(),
            "refusals": [{"pattern": pattern, "why": why} for pattern, why in self.refusals],
            "compute_dtype": self.compute_dtype,
            "deterministic": self.deterministic,
            "dirty_memory": self.dirty_memory,
            "layers": self.layers and not self.launched,  # else `sandbox.blame` does it
            "stopping_at": self.stopping_at,
            "features": self.features,
            "oracles": self.oracles,
            "function": self.function,
            "only_setup": self.only_setup,
            "compiles_anew": self.compiles_anew,
        }

    @property
    def processes_here(self) -> int:
        """How many ranks, as processes or threads, run on this node."""
        return len(self.part.ranks) if self.part else max(self.ranks, self.simulated)

    @property
    def layer(self) -> str:
        """The last layer that the program goes through."""
        if self.compile is None or self.compile.via == "export":
            return self.stops_at or "eager"
        backend = self.stopping_at or self.compile.backend
        return "dynamo" if backend == "eager" else backend

    @property
    def launched(self) -> bool:
        """Whether the program has several ranks, as processes or simulated as threads."""
        return self.ranks > 1 or self.simulated > 0

    def _compile_message(self) -> dict[str, Any] | None:
        if self.compile is None:
            return None
        stopping = {} if self.stopping_at is None else {"backend": self.stopping_at}
        return asdict(self.compile) | stopping

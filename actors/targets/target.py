"""What a target is: something that programs can be compiled for and run on.

A target says what it can do by its properties; nothing outside this folder asks which one it is.
`targets.registry` has all of them, `targets.availability` says which this machine can serve.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from attnfuzz.actors.sandbox.job import Deadlines, Job, Limits, RefusalLike, launched_ranks_of
from attnfuzz.generators.kernels.registry import REGISTRY
from attnfuzz.generators.methods.registry import method_of
from attnfuzz.generators.model.compiling import AHEAD
from attnfuzz.generators.model.program import Mesh, Program
from attnfuzz.generators.render.module import source
from attnfuzz.generators.strategies.swarm import CPU, PROFILES, Place

DEVICE_KERNELS = ("npu_fusion_attention", "varlen")
"""Kernels, and profiles of that name, that need their device: without its libraries their package
cannot be imported."""

PROMISES = {"ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS"}
"""Options of flex_attention's kernels by which a program vouches for its mask: where that does not
hold, the numbers are the program's own fault."""

INFERENCE = "inference_mode"
"""In which DTensors of fake tensors are not decomposed as real ones are."""

Probe = Mapping[str, Any]
"""What the toolchain's interpreter has and finds, see `targets.availability`."""


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """The device that a virtual target stands for and, in the words of reports, what is done in
    its place: `treatment` ("compiled for NVIDIA A10"), what becomes of `kernels` ("no kernel run"),
    of the program (`ran`: "nothing was run") and how a failure was `found`."""

    device: str
    treatment: str
    kernels: str
    ran: str
    found: str


@dataclass(frozen=True)
class Target(ABC):
    """`device` is where a program's tensors lie, as torch names it; the other fields are what the
    target can do, with the CPU's values.

    - `place`: what programs are drawn for it.
    - `limits`: what a program may use, unless a configuration says so.
    - `ranks_seen`: how many run of a program of several ranks: all of them; "simulated" ones alone,
      which are threads of one process and share one device; "one", which stands for all of them;
      with "none" there are no such programs.
    - `deterministic_gradients`: the same backward pass gives the same bits.
    - `seeded_by_cpu`: what a compiled checkpoint draws is seeded from the CPU's generator.
    - `heeds_kernel_options`: flex_attention's kernels run, whose options can change their numbers.
    - `costs_known`: what programs cost here is in the table of `actors.cost`.
    - `starts_cold`: each program's process starts the device and its compilers anew, which takes
      longer than the program.
    - `can_confirm`: a replay here confirms or refutes what a virtual target has found.
    - `stand_in`: what a virtual target stands for; None for one that is there.
    - `ray_resource`: what Ray calls the device of which a worker needs a share.
    - `device_variables`: environment variables that say which devices a process sees, of which Ray
      sets the one of the maker's at hand.
    """

    name: str
    device: str
    _: KW_ONLY
    place: Place = CPU
    limits: Limits = field(default_factory=Limits)
    ranks_seen: Literal["all", "simulated", "one", "none"] = "all"
    deterministic_gradients: bool = True
    seeded_by_cpu: bool = False
    heeds_kernel_options: bool = False
    costs_known: bool = False
    starts_cold: bool = False
    can_confirm: bool = False
    stand_in: StandIn | None = None
    ray_resource: str | None = None
    device_variables: tuple[str, ...] = ()

    @property
    def all_ranks(self) -> bool:
        """Whether all ranks of a program of several are there."""
        return self.ranks_seen in ("all", "simulated")

    def script_runs_here(self, program: Program) -> bool:
        """Whether the script of a failure of `program` shows it on the machine that found it: of
        ranks that share one device it wants a device for each."""
        return self.stand_in is None and not self._shares(program)

    def _shares(self, program: Program) -> bool:
        """Whether the ranks of `program` share a device that its script has one each of."""
        return self.ranks_seen == "simulated" and launched_ranks_of(program) > 1

    # -- which programs ------------------------------------------------------------------------

    def kernels(self, preload: bool = False) -> tuple[str, ...]:
        """The kinds of kernel that it takes; `preload` as for `unfit`."""
        return tuple(kind for kind in REGISTRY if preload or kind not in DEVICE_KERNELS)

    def unfit(self, program: Program, preload: bool = False) -> str | None:
        """Why `program` cannot be run on this target, as a sentence that begins with a key of the
        program; None for one that can. `preload`: files are loaded before it, which may stand in
        for its kernel's package."""
        kind, known = program.kernel.kind, self.kernels(preload)
        if kind not in known:
            if self.stand_in is None and kind in DEVICE_KERNELS:
                return f"kernel.kind: {kind} runs on {self.name} over a stand-in only"
            return f"kernel.kind: {self.name} takes one of {', '.join(known)}, got {kind}"
        if program.mesh is not None and (why := self._unfit_mesh(program, program.mesh)):
            return why
        method = method_of(program)
        problems = method.problems_on(self.device, program) if method else ()
        for problem in problems:
            return f"{problem.key}: {problem.sentence}, on {self.name}"
        if program.compile is not None and program.compile.backend not in self.place.backends:
            has = ", ".join(name for name in self.place.backends if name != "none")
            return f"compile.backend: {self.name} takes one of {has}"
        if self.stand_in is not None and program.compile and program.compile.via in AHEAD:
            return f"compile.via: {self.name} takes nothing that is exported"
        if not self.place.links and program.compile and program.compile.options.get("cpp_wrapper"):
            return f"compile.options.cpp_wrapper: {self.name} has no libraries of CUDA to link with"
        promises = sorted(PROMISES & getattr(program.kernel, "kernel_options", {}).keys())
        if promises and self.heeds_kernel_options:
            return f"kernel.kernel_options.{promises[0]}: a promise that its mask need not keep"
        return None

    def _unfit_mesh(self, program: Program, mesh: Mesh) -> str | None:
        """Why there are no such ranks here, as `unfit` says it."""
        match self.ranks_seen:
            case "none":
                one = "device" if self.stand_in is None else "card"
                return f"mesh: expected none, as {self.name} is one {one}"
            case "simulated" if mesh.method is None:
                return f"mesh.method: expected one, as {self.name} has no LocalTensorMode"
            case "simulated" if mesh.ranks == "processes":
                return f"mesh.ranks: expected simulated, as {self.name} is one device"
            case "simulated" if mesh.module != "none":
                return f"mesh.module: expected none, as {self.name} is one device"
            case "one" if mesh.module != "none":
                return f"mesh.module: expected none, as {self.name} has one rank, without data"
            case "one" if program.grad_mode == INFERENCE:
                return f"grad_mode: expected another with a mesh, as {self.name} has fake tensors"
        return None

    def profiles(self, weights: Mapping[str, float], preload: bool = False) -> dict[str, float]:
        """Those of a campaign's profiles, with their weights, whose programs this target takes;
        `preload` as for `unfit`."""
        fit = set(self.kernels(preload))
        return {
            name: weight
            for name, weight in weights.items()
            if PROFILES[name].ranks in self._ranks_drawn
            and fit.issuperset(kernel for kernel, _ in PROFILES[name].kernels)
            and any(backend in self.place.backends for backend, _ in PROFILES[name].backends)
        }

    @property
    def _ranks_drawn(self) -> tuple[str, ...]:
        """Which `ranks` profiles may have that are drawn for it."""
        some = {"none": ("few",), "simulated": ("few", "methods")}
        return some.get(self.ranks_seen, ("few", "several", "methods"))

    # -- how they are run ----------------------------------------------------------------------

    def deadlines(self, on_cpu: Deadlines) -> Deadlines:
        """What a program may take here, by what it may on a CPU."""
        return on_cpu

    def cpu_source(self, program: Program) -> str | None:
        """The program's source for the CPU, where the target runs that too."""
        return None

    def job(self, program: Program, refusals: Iterable[RefusalLike], on_cpu: Deadlines) -> Job:
        """How `program` is run and judged here; `refusals` are those of its kernel, `on_cpu` what
        it may take on a CPU."""
        return Job.of(
            program,
            refusals,
            self.deadlines(on_cpu),
            target=self.name,
            plain=self.cpu_source(program),
            one_process=not self.all_ranks,
            deterministic_gradients=self.deterministic_gradients,
            seeded_by_cpu=self.seeded_by_cpu,
        )

    def source(self, program: Program) -> str:
        """The program as it is run here."""
        return source(program, self.device, all_ranks=self.all_ranks)

    # -- how reports name it --------------------------------------------------------------------

    def environment(self, other: Mapping[str, str]) -> dict[str, str]:
        """`other`, which may be of another target of the same toolchain, with this one instead."""
        found = {name: text for name, text in other.items() if name != "card"}
        found["target"] = self.name
        if self.stand_in is not None:
            found["card"] = f"{self.stand_in.device} (virtual: {self.stand_in.ran})"
        return found

    def script_note(self, program: Program) -> str:
        """What the script of a failure of `program` says of where it is to be run; empty for what
        ran."""
        if self._shares(program):
            count = launched_ranks_of(program)
            found = "found by attnfuzz with simulated ranks that share one"
            return f"For {count} devices, one for each rank: {found}, not run on {count} yet."
        if self.stand_in is None:
            return ""
        return f"For {self.stand_in.device}: {self.stand_in.found}, not run on such a device yet."

    # -- whether it can be had -----------------------------------------------------------------

    def availability(self, probe: Probe) -> tuple[bool, str]:
        """Whether programs can run here with the interpreter that was probed, and one sentence
        that says what there is, or what is missing."""
        if "error" in probe:
            return False, f"torch cannot be imported: {probe['error']}"
        missing = self._missing(probe)
        return missing is None, missing or self._found(probe)

    @abstractmethod
    def _missing(self, probe: Probe) -> str | None:
        """Why programs cannot run here, though torch can be imported; None where they can."""

    @abstractmethod
    def _found(self, probe: Probe) -> str:
        """What there is."""


def missing_compiler(purpose: str) -> str | None:
    """That there is no C++ compiler, which does what `purpose` says; None where there is one."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is not None:
        return None
    return f"there is no C++ compiler {compiler}, which {purpose}"

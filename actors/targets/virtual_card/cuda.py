"""Makes torch and Triton believe that a card is there: Inductor then compiles for it.

"cuda" is what torch calls the cards of NVIDIA, and those of AMD too.

`install` is called once in a zygote that has loaded `virtual_card.shim`. What is compiled goes all
the way to a cubin, whose use of the card is noted in `KERNELS` when it would be loaded; there
Triton's own checks (shared memory, threads with that many registers) raise what they would raise.
`torch.cuda.is_available()` is true for callers that compile (`COMPILERS`), false for all others:
where it is true, torch makes real tensors. What Inductor and dynamo look up about devices is true.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from attnfuzz.actors.targets.virtual_card.binaries import of_code_object, of_cubin
from attnfuzz.actors.targets.virtual_card.cards import Card


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel as it would be loaded: bytes of shared memory for a block, registers and
    bytes of stack (where registers are spilled to) for a thread, bytes of the cubin."""

    name: str
    shared_bytes: int
    registers: int
    stack_bytes: int
    cubin_bytes: int


COMPILERS = (
    "torch._inductor", "torch.utils._triton", "torch._meta_registrations",
    "torchtune.utils._import_guard",
)  # fmt: skip
"""The modules, with all below them, for which CUDA is available: tiles, atomics and what needs a
certain architecture depend on it, the shapes of what ROCm's operators return, and whether torchtune
calls flex_attention."""

KERNELS: list[Kernel] = []
"""The kernels of this process, in the order in which they would have been loaded."""


def tell_build(card: Card) -> None:
    """Makes torch one built for `card`. To be called before Inductor is imported, which looks
    at it then. Imports torch."""
    import torch

    if card.is_amd:
        torch.version.hip = "6.4"  # distinguishes torch's ROCm build from its CUDA build


Runner = Callable[[Any], Callable[..., Any]]
"""From what Inductor compiled to a function of fake tensors that runs it."""


def install(card: Card, runner: Runner | None = None) -> None:
    """Makes this process compile for `card`; what was compiled is run by way of `runner`, if any.
    Imports torch, Inductor and triton."""
    import torch
    import triton

    triton.runtime.driver.set_active(_driver(card))
    import torch._inductor.runtime.triton_helpers as helpers

    helpers.set_driver_to_gpu = lambda: None
    torch._inductor.config.use_static_cuda_launcher = False
    answers = _answers(card)
    for name, answer in answers.items():
        _fold_like(getattr(torch.cuda, name), answer)
        setattr(torch.cuda, name, answer)
    for name in ("_lazy_init", "current_device"):  # it has names of its own for them
        setattr(torch.cuda.random, name, answers[name])
    torch.cuda.default_generators = (_generator(),)
    torch._C._cuda_getCurrentRawStream = _device()
    torch._C._cuda_cudaCachingAllocator_is_enabled = lambda: True
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False  # or autocast turns off
    _register_interface(card, answers)
    _compile_copies(runner)
    _constants_on_cpu()
    _choose_unmeasured(loads=_loads if runner is None else lambda choice: True)


def _fold_like(before: Callable[..., Any], after: Callable[..., Any]) -> None:
    """Dynamo knows by identity what it may ask while it traces: `after` now, if it was `before`."""
    from torch._dynamo.variables import torch as functions

    for known in (functions.constant_fold_functions, functions.constant_fold_functions_need_guards):
        if before in known:
            known[after] = None


def _device() -> Callable[..., int]:
    """A function that gives 0, whatever its arguments: the device, or its stream. A fresh one each
    time, since dynamo distinguishes functions by identity."""
    return lambda *_, **__: 0


def _generator() -> Any:
    """The card's random numbers, of which nothing is drawn: fused attention that is recomputed has
    their state saved and restored."""
    import torch

    class Generator(torch.Generator):
        device = torch.device("cuda", 0)

        def clone_state(self) -> Generator:
            return Generator()

        def graphsafe_get_state(self) -> Generator:
            return self

        def graphsafe_set_state(self, state: Generator) -> None:
            pass

    return Generator()


def _answers(card: Card) -> dict[str, Callable[..., Any]]:
    """What replaces functions of `torch.cuda`."""

    def is_available() -> bool:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return caller.startswith(COMPILERS)

    return {
        "is_available": is_available,
        "get_device_properties": lambda device=None: card,
        "get_device_capability": lambda device=None: card.capability,
        "get_device_name": lambda device=None: card.name,
        "device_count": lambda: 1,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_tf32_supported": lambda: True,
        "current_device": _device(),
        "set_device": _device(),
        "_exchange_device": _device(),
        "_maybe_exchange_device": _device(),
        "synchronize": _device(),
        "_lazy_init": _device(),
    }


def _register_interface(card: Card, answers: dict[str, Callable[..., Any]]) -> None:
    """What Inductor and dynamo ask of a kind of device."""
    import torch._dynamo.device_interface as interfaces

    interfaces.init_device_reg()  # or it is done later, over ours

    class Worker:
        set_device = staticmethod(_device())
        current_device = staticmethod(_device())
        get_device_properties = staticmethod(answers["get_device_properties"])

    methods = {name: staticmethod(answer) for name, answer in answers.items()}
    virtual = type("VirtualCudaInterface", (interfaces.CudaInterface,), {
        **methods,
        "Worker": Worker,
        "exchange_device": staticmethod(_device()),
        "maybe_exchange_device": staticmethod(_device()),
        "get_raw_stream": staticmethod(_device()),
        "is_available": staticmethod(lambda: True),
        "get_compute_capability": staticmethod(lambda device=None: card.arch),
        "is_triton_capable": staticmethod(lambda device=None: True),
        "raise_if_triton_unavailable": staticmethod(_device()),
    })  # fmt: skip
    for name in ("cuda", "cuda:0"):
        interfaces.register_interface_for_device(name, virtual)


def _driver(card: Card) -> Any:
    """A driver of Triton's, which loads nothing."""
    import torch
    from triton.backends.compiler import GPUTarget

    class Utils:
        def get_device_properties(self, device: int) -> dict[str, int]:
            return {
                "max_shared_mem": card.shared_memory_per_block_optin,
                "max_num_regs": card.regs_per_multiprocessor,
                "multiprocessor_count": card.multi_processor_count,
                "warpSize": card.warp_size,
                "sm_clock_rate": 1, "mem_clock_rate": 1, "mem_bus_width": 1,
            }  # fmt: skip

        def load_binary(self, name: str, cubin: bytes, shared: int, device: int) -> tuple[int, ...]:
            usage = (of_code_object if card.is_amd else of_cubin)(cubin)
            KERNELS.append(Kernel(name, shared, usage.registers, usage.stack_bytes, len(cubin)))
            threads = usage.max_threads or card.threads_with(usage.registers)
            return 0, 0, usage.registers, usage.stack_bytes // 4, threads

    class Driver:
        utils = Utils()

        def launcher_cls(self, source: object, metadata: object) -> Callable[..., None]:
            return lambda *args, **kwargs: None

        def get_current_target(self) -> Any:
            return GPUTarget("hip" if card.is_amd else "cuda", card.arch, card.warp_size)

        def get_active_torch_device(self) -> Any:
            return torch.device("cuda", 0)

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_device_capability(self, device: int = 0) -> tuple[int, int]:
            return card.capability

        get_current_device = staticmethod(_device())
        set_current_device = staticmethod(_device())
        get_current_stream = staticmethod(_device())

    return Driver()


def _compile_copies(runner: Runner | None) -> None:
    """Has Inductor compile a copy of each graph and give back the graph itself, which runs on fake
    tensors: what was compiled has nothing to run on unless there is a `runner`."""
    import torch
    import torch._inductor.compile_fx as inductor
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._inductor.utils import BoxedBool

    whole, inner = inductor.compile_fx, inductor.compile_fx_inner

    def compile_inner(graph: Any, inputs: Any, **options: Any) -> Any:
        if not any(is_on_card(node.meta.get("val")) for node in graph.graph.nodes):
            return make_boxed_func(
                graph.forward
            )  # a BlockMask of the inputs, say: not for the card
        copied = copy.deepcopy(graph)
        if runner is not None:
            options["cudagraphs"] = BoxedBool(False)  # nothing is captured on a CPU
        compiled = inner(copied, inputs, **options)
        if runner is not None:
            return runner(compiled)
        take_all_strides(graph)
        return make_boxed_func(graph.forward)

    def take_all_strides(graph: Any) -> None:
        # What Inductor generates views a tensor of any strides, and so its passes change them.
        for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
            node.target = torch.ops.aten.reshape.default
        graph.recompile()

    def is_on_card(value: Any) -> bool:
        each = value if isinstance(value, tuple | list) else (value,)
        return any(isinstance(one, torch.Tensor) and one.device.type == "cuda" for one in each)

    def compile_fx(model: Any, inputs: Any, inner_compile: Any = None, **options: Any) -> Any:
        return whole(model, inputs, inner_compile=inner_compile or compile_inner, **options)

    inductor.compile_fx = compile_fx


def _constants_on_cpu() -> None:
    """Where constants are computed, one number each, on the device, the CPU does it: folding in
    Inductor, and tracing, which keeps the value of what it may be asked for."""
    import torch
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder
    from torch.fx.experimental import proxy_tensor
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnCpu(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            given = [*args, *(kwargs or {}).values()]
            options = {name: here(value) for name, value in (kwargs or {}).items()}
            result = function(*map(here, args), **options)
            # What goes to another device has memory of its own there, which folding looks at.
            return result.clone() if any(map(on_card, given)) else result

    def on_card(value: Any) -> bool:
        return isinstance(value, torch.device) and value.type == "cuda"

    def here(value: Any) -> Any:
        return torch.device("cpu") if on_card(value) else value

    for name in ("run", "_add_peephole_patterns"):
        _within(UniformValueConstantFolder, name, OnCpu)
    really = proxy_tensor.unset_fake_temporarily

    @contextmanager
    def really_on_cpu() -> Iterator[object]:
        with really() as mode, OnCpu():
            yield mode

    proxy_tensor.unset_fake_temporarily = really_on_cpu


def _choose_unmeasured(loads: Callable[[Any], bool]) -> None:
    """Where Inductor would measure what is fastest, it takes the first candidate that `loads`: the
    kernels that it generates come before those of libraries."""
    import torch._inductor.config as config
    from torch._inductor.fx_passes import pad_mm
    from torch._inductor.select_algorithm import AlgorithmSelectorCache, ExternKernelCaller

    pad_mm.should_pad = lambda *args, **kwargs: False  # decided by measuring alone
    config.benchmark_epilogue_fusion = False  # or epilogues are measured, each on real tensors

    def times(choices: Sequence[Any], **_: object) -> dict[Any, float]:
        seconds = dict.fromkeys(choices, float("inf"))
        for choice in sorted(choices, key=lambda one: isinstance(one, ExternKernelCaller)):
            if loads(choice):
                seconds[choice] = 1.0
                break
        return seconds

    def make_benchmark_fn(*_: object, **__: object) -> Callable[..., dict[Any, float]]:
        return times

    def make_precompile_fn(*_: object, **__: object) -> Callable[[], dict[Any, float]]:
        return dict

    AlgorithmSelectorCache.make_benchmark_fn = staticmethod(make_benchmark_fn)
    AlgorithmSelectorCache.make_precompile_fn = make_precompile_fn


def _loads(choice: Any) -> bool:
    """Whether a candidate compiles and would be loaded by the card."""
    precompile = getattr(choice, "precompile", None)  # what is a library's needs none
    try:
        if precompile is not None:
            precompile()
    except Exception:  # as Inductor does it: such a candidate is left out
        return False
    return True


def _within(owner: type, name: str, context: Callable[[], Any]) -> None:
    """Has the method `name` of `owner` run within a context."""
    before = getattr(owner, name)

    def within(self: Any) -> Any:
        with context():
            return before(self)

    setattr(owner, name, within)


def loaded_kernels() -> list[dict[str, Any]]:
    """The kernels so far, as data."""
    return [asdict(kernel) for kernel in KERNELS]

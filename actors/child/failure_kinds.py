"""Which kind of failure an exception is, and in which phase it belongs."""

from __future__ import annotations

import re
from collections.abc import Callable

from attnfuzz.actors.child import exceptions
from attnfuzz.actors.child.outcomes import Data

COMPILING = re.compile(
    r"torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph|guards)\.py"
    r"|torch/_functorch/_aot_autograd/(?:graph_\w+|collect_metadata_analysis)\.py"
    r"|torch/_inductor/(?:graph|lowering|scheduler|async_compile|codecache|ir)\.py"
    r"|torch/_inductor/codegen/"
    r"|torch/export/(?:_trace|exported_program|dynamic_shapes)\.py|torch/_export/(?!utils\.py)"
)
_COMPILE_FX = re.compile(r"\w*compile\w*|fw_compiler\w*|bw_compiler\w*")

_MIXING = re.compile(
    r"got mixed torch\.Tensor and DTensor|Please convert all Tensors to FakeTensors first"
    r"|mixing fake and real|Mixing fake modes", re.IGNORECASE,
)  # fmt: skip
_MEMORY = re.compile(
    r"can't allocate memory|Cannot allocate memory|virtual memory exhausted|std::bad_alloc"
    r"|out of memory allocating|Killed signal terminated program"
    r"|^MemoryError|OutOfMemoryError|not enough memory"
    r"|OutOfResources|out of resource: shared memory|CUDA error: out of memory|STATUS_ALLOC_FAILED"
)
_ACCESS = re.compile(
    r"illegal memory access|misaligned address|unspecified launch failure|device-side assert"
    r"|(?:global/shared|invalid) address space|invalid program counter|hardware stack error"
    r"|an illegal instruction was encountered|Memory access fault by GPU|OutOfBounds: "
)
_STRIDES = re.compile(
    r"expected size \S+==\S+, stride \S+==\S+|wrong number of dimensions\d* for op"
)
_RECOMPILES = re.compile(r"FailOnRecompileLimitHit|recompile_limit|Dynamo recompile limit exceeded")

_RULES: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("no_valid_choices", re.compile("NoValidChoicesError").search),
    ("recompile_limit", _RECOMPILES.search),
    ("type_mixing", _MIXING.search),
    ("out_of_memory", _MEMORY.search),
    ("illegal_access", _ACCESS.search),
    ("metadata_mismatch", _STRIDES.search),
)


def is_compiling(error: BaseException) -> bool:
    """Whether the compiler itself was at work, rather than what it made. Dynamo cuts the stacks
    of its own exceptions off, so for them the type has to tell."""
    for link in exceptions.links(error):
        if type(link).__module__ in ("torch._dynamo.exc", "torch._inductor.exc"):
            return True
        for frame in _places(link):
            file, function = frame
            if COMPILING.match(file):
                return True
            if file == "torch/_inductor/compile_fx.py" and _COMPILE_FX.fullmatch(function):
                return True
    return False


def in_inductor(error: BaseException) -> bool:
    """Whether Inductor was compiling."""
    return is_compiling(error) and any(
        file.startswith("torch/_inductor/")
        for link in exceptions.links(error)
        for file, _ in _places(link)
    )


_INTERNAL = frozenset({
    "AssertionError", "AttributeError", "IndexError", "KeyError", "NameError", "RecursionError",
    "SystemError", "TypeError", "UnboundLocalError", "ZeroDivisionError",
})  # fmt: skip
_COMPILERS = ("torch/_dynamo/", "torch/_functorch/", "torch/_inductor/")


def is_internal(error: BaseException, raised: Data) -> bool:
    """Whether the compiler broke, rather than declined: an error of the C++ compiler's, or one that
    nobody raises to tell a user something, in the compiler's own code. What decompositions and fake
    kernels raise is what the operator would have said. `raised` is the data of `error`."""
    names = [name.rpartition(".")[2] for name in (*raised["chain"], raised["type"])]
    if "CppCompileError" in names:
        return True
    frames = raised["frames"]
    own = bool(frames) and frames[-1]["file"].startswith(_COMPILERS)
    return is_compiling(error) and names[-1] in _INTERNAL and own


def in_backward_graph(error: BaseException) -> bool:
    """Whether Inductor was compiling the backward graph, which it does apart from the forward."""
    return any(
        function == "compile_fx_backward"
        for link in exceptions.links(error)
        for _, function in _places(link)
    )


def kind_of(error: BaseException, *, compiling: bool) -> str:
    """The `FailureKind` of an exception."""
    everything = "\n".join(exceptions.sentences(error))
    for kind, applies in _RULES:
        if applies(everything):
            return kind
    return "compile_error" if compiling else "runtime_error"


def _places(error: BaseException) -> list[tuple[str, str]]:
    """(file relative to site-packages, function) of each frame of its traceback."""
    found = []
    current = error.__traceback__
    while current is not None:
        code = current.tb_frame.f_code
        found.append((code.co_filename.rpartition("-packages/")[2], code.co_name))
        current = current.tb_next
    return found

"""The frames of a stack that say where a failure comes from.

Most frames of a compiler's stack are there in every failure: dispatchers, interpreters, wrappers.
What is left, inside torch's compiler, attention, autograd and distributed code, names the cause.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from attnfuzz.generators.model.outcome import Frame

TOP = 3
"""Frames kept."""

GENERATED = "<generated>"
"""Stands for the file of code that Inductor wrote."""

SIGNIFICANT = (
    GENERATED,
    "torch/_inductor/",
    "torch/_dynamo/",
    "torch/_functorch/",
    "torch/_higher_order_ops/",
    "torch/_subclasses/",
    "torch/_decomp/",
    "torch/_refs/",
    "torch/_prims",
    "torch/_meta_registrations.py",
    "torch/fx/",
    "torch/utils/checkpoint.py",
    "torch/utils/_sympy/",
    "torch/nn/attention/",
    "torch/nn/functional.py",
    "torch/distributed/",
    "torch_npu/",
    "flash_attn/",
    "ring_flash_attn/",
    "transformers/",
    "torchtitan/",
    "yunchang/",
    "diffusers/",
    "attn_gym/",
    "torchtune/",
    "triton/",
)

GENERIC_FILES = (
    "torch/_ops.py",
    "torch/_dynamo/eval_frame.py",
    "torch/_dynamo/convert_frame.py",
    "torch/_dynamo/output_graph.py",
    "torch/_dynamo/symbolic_convert.py",
    "torch/_dynamo/bytecode_transformation.py",
    "torch/_dynamo/exc.py",
    "torch/_dynamo/utils.py",
    "torch/_dynamo/repro/",
    "torch/_dynamo/backends/",
    "torch/_dynamo/variables/lazy.py",
    "torch/_dynamo/_trace_wrapped_higher_order_op.py",
    "torch/_functorch/aot_autograd.py",
    "torch/_functorch/_aot_autograd/graph_compile.py",
    "torch/_functorch/_aot_autograd/graph_capture",
    "torch/_functorch/_aot_autograd/runtime_wrappers.py",
    "torch/_functorch/_aot_autograd/subclass_codegen.py",
    "torch/_functorch/_aot_autograd/codegen.py",  # wrappers that torch 2.14 and later generate
    "torch/_functorch/_aot_autograd/utils.py",
    "torch/_functorch/apis.py",
    "torch/_functorch/eager_transforms.py",
    "torch/_functorch/vmap.py",
    "torch/_inductor/async_compile.py",
    "torch/_inductor/codecache.py",
    "torch/_inductor/compile_fx",
    "torch/_inductor/cpp_builder.py",
    "torch/_inductor/debug.py",
    "torch/_inductor/output_code.py",
    "torch/_inductor/runtime/compile_tasks.py",
    "torch/_inductor/utils.py",
    "torch/_subclasses/functional_tensor.py",
    "torch/fx/interpreter.py",
    "torch/fx/graph_module.py",
    "torch/fx/experimental/proxy_tensor.py",
    "torch/fx/_lazy_graph_module.py",
    "torch/fx/traceback.py",
)

# In files that say something otherwise.
GENERIC_FUNCTIONS = re.compile(
    r"(?:.*\.)?(?:<\w+>|inner|wrapper|wrapped|_fn|fn|dispatch|_dispatch_impl|run|run_node|"
    r"call_function|call_method|call_module|codegen|_?wrap_fx_proxy\w*|forward|backward|_compile\w*|compile\w*|__call__|__init__|"
    r"__torch_dispatch__|__torch_function__|_cached_dispatch_impl|cache_on_self\w*|"
    r"propagate_meta|handle_dispatch|_call_impl|_wrapped_call_impl|realize_into|realize|"
    r"checkpoint|_checkpoint_without_reentrant_generator)"
)


GENERATED_FILE = re.compile(r"c[a-z0-9]{20,}(?:\.main)?\.(?:py|so|cpp)")
"""Named by the hash of what is in it."""

# Allocators, signal handlers, dispatchers and the way to a signal say nothing of the cause.
_GENERIC_NATIVE = re.compile(
    r"(?:__|_)?(?:raise|abort|gsignal|pthread_kill\w*|restore_rt|libc_\w+|assert_fail\w*|"
    r"cxa_throw|malloc\w*|free|cfree|memcpy\w*|memmove\w*|clone3?|start_thread)|\?\?|_Py\w*|"
    r"Py\w*|(?:c10|at)::(?:impl|_ops|detail)::.*|torch::autograd::.*"
)


def significant_frames(frames: Sequence[Frame], *, outermost: bool = False) -> tuple[str, ...]:
    """The `TOP` significant frames as "file:function", no line numbers, innermost first;
    consecutive equal ones count once. `outermost` takes them from the other end: of a loop that was
    interrupted, the inner frames depend on the moment."""
    innermost_first = [_name(frame) for frame in reversed(frames) if _is_significant(frame)]
    names = _without_repeats(innermost_first)
    return tuple(names[-TOP:] if outermost else names[:TOP])


def recursing_frames(frames: Sequence[Frame]) -> tuple[str, ...]:
    """Of a recursion that did not end, the functions that call each other, by name: where among
    them the limit is met, and in what they had called there, is chance."""
    names = Counter(_name(frame) for frame in frames if not frame.function.startswith("<"))
    return tuple(sorted(name for name, count in names.items() if count > len(frames) / 10)[:TOP])


def is_stack(names: Sequence[str]) -> bool:
    """Do significant frames distinguish one cause from another? Code that Inductor wrote looks the
    same from outside, whatever is in it."""
    return any(not name.startswith(GENERATED) for name in names)


def _is_significant(frame: Frame) -> bool:
    if _is_native(frame):
        return not _GENERIC_NATIVE.fullmatch(_plain(frame.function))
    file = _file(frame)
    if file == GENERATED:
        return True
    return (
        file.startswith(SIGNIFICANT)
        and not file.startswith(GENERIC_FILES)
        and not GENERIC_FUNCTIONS.fullmatch(frame.function)
    )


def _is_native(frame: Frame) -> bool:
    """A C or C++ frame: its file is a shared library and it has no line."""
    return frame.line == 0 and ".so" in frame.file


def _file(frame: Frame) -> str:
    file = re.sub(r"\.so[.\d]*$", ".so", frame.file)
    return GENERATED if GENERATED_FILE.fullmatch(file) else file


def _plain(function: str) -> str:
    """A C++ function's name without its arguments and template parameters."""
    function = function.replace("(anonymous namespace)::", "")
    return re.sub(r"\(.*|<.*>", "", function)


def _name(frame: Frame) -> str:
    function = _plain(frame.function) if _is_native(frame) else frame.function
    return f"{_file(frame)}:{re.sub(r'_?[0-9]+', '', function)}"


def _without_repeats(names: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for name in names:
        if not kept or kept[-1] != name:
            kept.append(name)
    return kept

"""A recursion that does not end, as a cause."""

from __future__ import annotations

from attnfuzz.corpus.signature import signature
from attnfuzz.generators.model.outcome import Failure, FailureKind, Frame, Phase, Raised
from attnfuzz.generators.model.program import Program


def test_a_recursion_is_the_functions_that_recur_wherever_it_ends() -> None:
    def ended(*names: str, text: str) -> str:
        loop = [("torch/fx/experimental/proxy_tensor.py", "_compute_proxy"),
                ("torch/fx/experimental/proxy_tensor.py", "<genexpr>"),
                ("torch/utils/_thunk.py", "force")]  # fmt: skip
        last = [("torch/fx/operator_schemas.py", name) for name in names]
        frames = tuple(
            Frame(file=file, function=function, line=1) for file, function in (*loop * 100, *last)
        )
        message = f"maximum recursion depth exceeded{text}"
        raised = Raised(type="RecursionError", message=message, frames=frames)
        failure = Failure(kind=FailureKind.COMPILE_ERROR, phase=Phase.COMPILE, raised=raised)
        return signature(failure, Program()).strong

    one = ended("get_proxy_slot", "is_opaque_type", text=" while calling a Python object")
    assert one == ended(text=" in comparison") == ended("get_proxy_slot", text="")

"""What Inductor swallows before it says that there are no choices to select."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnfuzz.corpus.signature import signature
from attnfuzz.generators.kernels.specs import Flex
from attnfuzz.generators.model.codec import outcome_from_data
from attnfuzz.generators.model.indices import Table
from attnfuzz.generators.model.program import Compile, Program, Shape
from attnfuzz.generators.model.scores import FloatBinary, FloatLookup, Score
from attnfuzz.generators.render.module import source
from tests.support.child_programs import compile_settings, tell

pytestmark = pytest.mark.slow
TABLE = Table(axes=("kv_idx",), dtype="float32")
COMPUTED = Program(
    kernel=Flex(computed=True),
    shape=Shape(batch=1, q_heads=1, kv_heads=1, q_len=32, kv_len=32),
    score_mod=FloatBinary(op="+", left=Score(), right=FloatLookup(table=TABLE)),
    compile=Compile(),
)
NO_CHOICE = """
from torch._inductor.codegen.cpp_flex_attention_template import CppFlexAttentionTemplate
CppFlexAttentionTemplate.add_choices = staticmethod(lambda **options: None)
"""
GIVEN = replace(COMPUTED, kernel=Flex())


def test_no_valid_choices_is_told_with_what_refused_the_last_one() -> None:
    told = tell(source(COMPUTED), {"compile": compile_settings("inductor")})
    failure = told.failure
    assert (failure["kind"], failure["raised"]["type"]) == (
        "no_valid_choices", "NoValidChoicesError",
    )  # fmt: skip
    assert "NotImplementedError: Pointwise" in failure["evidence"]["refused choice"]
    assert failure["raised"]["frames"][-1]["function"] == "get_name"


def test_two_reasons_to_have_no_choice_have_two_keys() -> None:
    keys = set()
    for program, before in ((COMPUTED, ""), (GIVEN, NO_CHOICE)):
        told = tell(before + source(program), {"compile": compile_settings("inductor")})
        failure = outcome_from_data(told.outcome).failure
        assert failure is not None and failure.kind == "no_valid_choices"
        keys.add(signature(failure, program).strong)
    assert len(keys) == 2

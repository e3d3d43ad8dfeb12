"""Text from outside in a rendering is a constant, whatever it holds, and never code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from attnfuzz.generators.kernels.flex.drawing import KERNEL_OPTIONS
from attnfuzz.generators.kernels.flex.spec import BlockMaskSpec
from attnfuzz.generators.kernels.specs import Flex, Function, Handwritten
from attnfuzz.generators.model.codec import ProgramError, dump_program, load_program
from attnfuzz.generators.model.masks import And, Documents, Mask
from attnfuzz.generators.model.options import INDUCTOR, KERNEL
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase, Raised
from attnfuzz.generators.model.program import Compile, Program
from attnfuzz.generators.model.tree import class_of, located, parts, put
from attnfuzz.generators.model.validity import problems
from attnfuzz.generators.render.checks import PROPERTIES
from attnfuzz.generators.render.global_state import GLOBAL, GLOBAL_STATE
from attnfuzz.generators.render.module import source
from attnfuzz.generators.render.parts import parts as rendered_parts
from attnfuzz.generators.render.quoting import QuotingError, docstring, literal
from attnfuzz.generators.render.repro import repro
from attnfuzz.generators.strategies.programs import programs
from attnfuzz.generators.strategies.running import OPTIONS as OPTIONS_DRAWN
from attnfuzz.generators.strategies.swarm import EVERYTHING, UserFunction
from tests.support.hostile_text import targets, texts

OPTION_VALUES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts()
OPTIONS = st.dictionaries(texts().filter(bool), OPTION_VALUES, min_size=1, max_size=4)
FUNCTION = replace(EVERYTHING, functions=(UserFunction(target="module:function"),))
CALLS_FUNCTION = replace(FUNCTION, profile="function")
INJECTION = '" + str(__import__("os").system("id > owned")) + "'

KNOWN_OUTPUTS = ("out", "lse", "dq", "ddq", "dbias", "q", "k", "mask", "attn_mask", GLOBAL)
KNOWN_PROPERTIES = ("value", "presence", "storage", "execution", "graph", "replicas", *PROPERTIES)


def numbers(draw: st.DrawFn, program: Program) -> Program:
    """The program with some of its numbers drawn anew, where it stays a program."""
    for path, _, node in located(program):
        for part in parts(class_of(node)):
            if part.sort not in ("number", "real") or not draw(st.booleans()):
                continue
            some: st.SearchStrategy[Any] = st.integers(part.least, part.least + 300)
            if part.sort == "real":
                some = st.floats(-1e4, 1e4, allow_nan=False)
            changed = put(program, path, replace(node, **{part.name: draw(some)}))
            if accepted(changed):
                program = changed
    return program


def accepted(program: Program) -> bool:
    try:
        return not problems(program) and load_program(dump_program(program)) == program
    except ProgramError:
        return False


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Program, Program]:
    """A program with any text wherever there may be some, what the codec refuses included, and the
    same with plain texts."""
    program = numbers(draw, draw(programs(FUNCTION) | programs(CALLS_FUNCTION)))
    plain = program
    if isinstance(program.kernel, Function):
        program = replace(program, kernel=Function(target=draw(targets())))
    kernel = program.kernel
    if isinstance(kernel, Flex):
        options = draw(OPTIONS)
        program = replace(program, kernel=replace(kernel, kernel_options=options))
        plain = replace(plain, kernel=replace(kernel, kernel_options=plainly(options)))
    if program.compile is not None and program.compile.backend == "inductor":
        options = draw(OPTIONS)
        program = replace(program, compile=replace(program.compile, options=options, mode=None))
        settings = replace(program.compile or Compile(), options=plainly(options))
        plain = replace(plain, compile=settings)
    return program, plain


def plainly(options: dict[str, Any]) -> dict[str, Any]:
    return {
        f"option{place}": "text" if isinstance(value, str) else value
        for place, value in enumerate(options.values())
    }


def shape(text: str, program: Program) -> str:
    """The syntax tree but for constants and what the program's own function is called."""
    tree = ast.parse(text)
    compile(text, "<rendered>", "exec")
    module = getattr(program.kernel, "target", "").partition(":")[0]
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            [imported] = node.names
            own = {imported.asname or imported.name}
            node.module, node.names = "module", [ast.alias("function")]
        elif isinstance(node, ast.Constant):
            node.value = None
            node.kind = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and module and node.id in own:
            node.id = "function"
    # Imports are sorted, the function's among them.
    tree.body.sort(key=lambda node: ast.dump(node) if isinstance(node, ast.ImportFrom) else "")
    return ast.dump(tree)


RENDERINGS: list[Callable[[Program], str]] = [source, lambda program: source(program, "cuda")]
SLOWLY = settings(
    max_examples=400, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@SLOWLY
@given(pairs(), st.sampled_from(RENDERINGS))
@example((Program(compile=Compile(options={"x": INJECTION})),
          Program(compile=Compile(options={"x": "text"}))), source)  # fmt: skip
@example((Program(compile=Compile(options={"it's": True})),
          Program(compile=Compile(options={"option": True}))), source)  # fmt: skip
@example((Program(kernel=Function(target="builtins:range")),
          Program(kernel=Function(target="module:function"))), source)  # fmt: skip
def test_a_rendering_is_the_same_code_whatever_texts_the_program_holds(
    pair: tuple[Program, Program], render: Callable[[Program], str]
) -> None:
    program, plain = pair
    assert shape(render(program), program) == shape(render(plain), plain)


@st.composite
def failing_pairs(draw: st.DrawFn) -> tuple[tuple[Program, Failure], tuple[Program, Failure]]:
    """A program of `pairs` with a failure as a stranger may write it down, and the same with plain
    texts where the texts are none of those that the oracles write."""
    programs = draw(pairs())
    rendered = rendered_parts(programs[0])
    outputs = (*KNOWN_OUTPUTS, *rendered.run.result_names(), *rendered.names)

    def either(known: tuple[str, ...]) -> tuple[str, str]:
        text = draw(st.sampled_from(known) | texts())
        return text, text if text in known else "plain"

    several = []
    for _ in range(draw(st.integers(0, 2))):
        output, plain_output = either(outputs)
        what, plain_what = either((*KNOWN_PROPERTIES, *GLOBAL_STATE))
        rest: dict[str, Any] = {
            "expected": draw(texts()), "actual": draw(texts()),
            "error": draw(st.none() | st.floats()), "budget": draw(st.none() | st.floats(0)),
            "call": draw(st.integers(0, 3)),
        }  # fmt: skip
        several.append(
            (Diff(output=output, what=what, **rest),
             Diff(output=plain_output, what=plain_what, **rest | {"expected": "", "actual": ""}))
        )  # fmt: skip
    raised = draw(st.none() | st.builds(Raised, type=texts(), message=texts(200)))
    same: dict[str, Any] = {
        "kind": draw(st.sampled_from(FailureKind)), "phase": draw(st.sampled_from(Phase)),
        "layer": draw(st.none() | st.sampled_from(Layer)),
    }  # fmt: skip
    signal = draw(st.none() | texts())
    hostile = Failure(
        **same, raised=raised, signal=signal, diffs=tuple(one for one, _ in several),
        evidence=draw(st.dictionaries(texts(), texts(), max_size=2)),
    )  # fmt: skip
    plain = Failure(
        **same, raised=raised and Raised(type="module.Error", message="text"),
        signal=None if signal is None else "SIGSEGV", diffs=tuple(one for _, one in several),
    )  # fmt: skip
    return (programs[0], hostile), (programs[1], plain)


@SLOWLY
@given(failing_pairs(), st.booleans(), st.sampled_from(["cpu", "cuda"]))
def test_a_script_is_the_same_code_whatever_the_failure_says(
    both: tuple[tuple[Program, Failure], tuple[Program, Failure]], by_value: bool, device: str
) -> None:
    shapes = [
        shape(repro(program, failure, by_value=by_value, device=device), program)
        for program, failure in both
    ]
    assert shapes[0] == shapes[1]


@SLOWLY
@given(st.recursive(OPTION_VALUES | st.none() | st.floats(allow_nan=False, allow_infinity=False),
                    lambda inner: st.lists(inner, max_size=3)
                    | st.lists(inner, max_size=3).map(tuple)
                    | st.dictionaries(texts(), inner, max_size=3), max_leaves=6))  # fmt: skip
def test_a_literal_reads_back(value: Any) -> None:
    text = literal(value)
    assert ast.literal_eval(text) == value
    assert "\n" not in text and text.isprintable()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"bytes", {1, 2}])
def test_what_has_no_literal_is_refused(value: object) -> None:
    with pytest.raises(QuotingError):
        literal(value)


@SLOWLY
@given(texts(200))
def test_a_docstring_is_one_constant(text: str) -> None:
    [only] = ast.parse(docstring(text)).body
    assert isinstance(only, ast.Expr) and isinstance(only.value, ast.Constant)
    assert isinstance(only.value.value, str)
    assert all(c == "\n" or c.isprintable() for c in only.value.value)


@pytest.mark.parametrize(
    "target",
    ["m:class", "class:def", "a..b:f", ".a:f", "m:None", "m:", ":f", "m", "m:f:g", "m:f\n",
     "m:f()", "m.1:f", "ﬁ:f", "m:f;x", "m:True", "m :f", "import:f", "a.in.b:f"],
)  # fmt: skip
def test_a_target_is_what_python_can_import(target: str) -> None:
    text = dump_program(replace(Program(), kernel=Function(target=target)))
    with pytest.raises(ProgramError, match=r"kernel\.target: expected module:function"):
        load_program(text)


OPTIONS_REFUSED = {
    "a compiler": ("compile", {"cpp.cxx": "/tmp/evil"}, "options of Inductor"),
    "flags for it": (
        "compile",
        {"cpp.enable_floating_point_contract_flag": "off -fplugin=x.so"},
        "options of Inductor",
    ),
    "text": ("compile", {"epilogue_fusion": "x"}, "true, false or an integer at 'epilogue_fus"),
    "files": ("compile", {"trace.enabled": True}, "options of Inductor that change how"),
    "a network": ("compile", {"fx_graph_remote_cache": True}, "options of Inductor"),
    "a planted fault": ("compile", {"cpp.inject_relu_bug_TESTING_ONLY": True}, "options of"),
    "a name that is none": ("compile", {"a b": True}, "options of Inductor that"),
    "words that are none": ("compile", {"max_autotune_gemm_backends": "ATEN;CPP"}, "words at"),
    "code in a kernel": (
        "kernel",
        {"X : tl.constexpr = 1\nimport os #": 1},
        "options of flex_attention",
    ),
    "text in a kernel": ("kernel", {"BLOCK_M": "16\nimport os"}, "true, false or an integer"),
    "more than a word": ("kernel", {"BACKEND": "TRITON\n"}, "words at 'BACKEND'"),
}


@pytest.mark.parametrize(
    ("where", "options", "said"), OPTIONS_REFUSED.values(), ids=OPTIONS_REFUSED
)
def test_an_option_cannot_reach_beyond_the_compiler(
    where: str, options: dict[str, Any], said: str
) -> None:
    program = Program(compile=Compile(options=options))
    if where == "kernel":
        program = Program(kernel=Flex(kernel_options=options))
    with pytest.raises(ProgramError, match=rf"{where}\.(kernel_)?options: expected {said}"):
        load_program(dump_program(program))


def test_every_option_that_is_drawn_is_listed() -> None:
    drawn = {name for options in OPTIONS_DRAWN for name in options}
    assert drawn <= INDUCTOR
    assert {name for options in KERNEL_OPTIONS for name in options} <= KERNEL


@pytest.mark.parametrize(
    "output",
    ["q._quoted_0_", "q._quoted_99_", "q" + ".a" * 5000, "q" + "[0]" * 30000, "q.class", "print"],
)  # fmt: skip
def test_a_failure_names_only_what_there_is(output: str) -> None:
    diff = Diff(output=output, what="storage", expected="", actual="")
    failure = Failure(kind=FailureKind.MUTATION, phase=Phase.CHECK, diffs=(diff,))
    script = repro(Program(compile=Compile(options={"epilogue_fusion": True})), failure)
    compile(script, "<script>", "exec")
    assert output not in script.partition('"""\n')[2]


@pytest.mark.parametrize("target", ["__future__:annotations", "__future__:nothing"])
def test_no_function_changes_the_language(target: str) -> None:
    with pytest.raises(ProgramError, match=r"kernel\.target"):
        load_program(dump_program(Program(kernel=Function(target=target))))


def test_a_tree_has_a_size_that_can_be_rendered() -> None:
    def tree(depth: int) -> Mask:
        return And(left=tree(depth - 1), right=tree(depth - 1)) if depth else Documents()

    kernel = Flex(block_mask=BlockMaskSpec())
    source(load_program(dump_program(Program(kernel=kernel, mask=tree(7)))))
    with pytest.raises(ProgramError, match="mask: expected at most 300 nodes, got more"):
        load_program(dump_program(Program(kernel=kernel, mask=tree(10))))


@pytest.mark.parametrize("scaling", ["div", "query_div", "mul", "both"])
def test_a_scale_has_an_inverse(scaling: Any) -> None:
    program = Program(kernel=Handwritten(scale=5e-324, scaling=scaling))
    with pytest.raises(ProgramError, match=r"kernel\.scale: expected"):
        load_program(dump_program(program))

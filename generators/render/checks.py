"""The last lines of a reproduction: what is run, and what is asserted of it.

Each check gives statements over `call`, the text of the failing call, and says what it needs.
"""

from __future__ import annotations

import re

from attnfuzz.generators.model.growth import STRIDE, TOO_MUCH, most_steps
from attnfuzz.generators.model.outcome import Diff, Failure, FailureKind, Layer, Phase
from attnfuzz.generators.render import modes
from attnfuzz.generators.render.check import Check
from attnfuzz.generators.render.global_state import GLOBAL, GLOBAL_STATE
from attnfuzz.generators.render.mods import compact_grids
from attnfuzz.generators.render.parts import Block, Parts, without_return
from attnfuzz.generators.render.quoting import is_member, number
from attnfuzz.generators.render.scene import indented

STRIDES = [
    "def strides(t):",
    "    return [stride for stride, size in zip(t.stride(), t.shape) if size > 1]",
]
PROPERTIES = ("shape", "dtype", "device", "stride", "storage_offset", "requires_grad", "aliases")
"""Of tensors, as the oracles name them."""

UNFUSED = 'warnings.filterwarnings("error", message="flex_attention called without torch.compile")'


def check_for(parts: Parts, failure: Failure, by_value: bool = False) -> Check:
    """The check that fails where `failure` shows, and passes where it does not; `by_value` is as in
    `generators.render.repro`."""
    writer = CheckWriter(parts, failure)
    diff = failure.diffs[0] if failure.diffs else None
    if by_value and failure.signal is not None:
        return writer.far_off(parts.run.outputs[0])
    if failure.raised is not None or diff is None or not writer.can_say(diff):
        return writer.just_run()
    match failure.kind:
        case FailureKind.WRONG_RESULT:
            return writer.wrong_result(diff)
        case FailureKind.NONFINITE:
            return writer.far_off(diff.output) if by_value else writer.nonfinite(diff)
        case FailureKind.METADATA_MISMATCH:
            return writer.metadata(diff)
        case FailureKind.NONDETERMINISM:
            return writer.nondeterminism(diff)
        case FailureKind.MUTATION:
            return writer.mutation(diff)
        case FailureKind.RECOMPILE_LIMIT | FailureKind.GRAPH_BREAK:
            return writer.compilations(diff)
        case FailureKind.COMPILE_TIME:
            return writer.growth()
    return writer.just_run()


class CheckWriter:
    """Writes the statements of checks for `failure` of the program that `parts` render."""

    def __init__(self, parts: Parts, failure: Failure) -> None:
        self.parts, self.failure = parts, failure
        eager = failure.layer is Layer.EAGER or failure.phase is Phase.EAGER
        self.compiled = parts.program.compile is not None and not eager
        self.function = "compiled" if self.compiled else "attention"
        program = parts.program
        self.simple = (
            (program.training is None or self.is_of_forward)
            and program.transform in ("none", "vmap")
            and program.grad_mode == "default"
            and parts.run.outputs == ("out",)
            and program.modes.default_dtype == "float32"
            and parts.run.loop is None
        )

    @property
    def is_of_forward(self) -> bool:
        """Whether it is a wrong result of a first call, before which there is no backward pass."""
        program, diffs = self.parts.program, self.failure.diffs
        of_out = self.failure.kind is FailureKind.WRONG_RESULT and diffs[:1] and diffs[0].output
        return of_out == "out" and not program.calls and not program.draws

    def can_say(self, diff: Diff) -> bool:
        """Whether what differs is something that a rendering has: a recorded failure may name
        anything, and names become code only where they are known."""
        outputs, what = self.parts.run.result_names(), diff.what
        match self.failure.kind:
            case FailureKind.WRONG_RESULT | FailureKind.NONFINITE | FailureKind.NONDETERMINISM:
                return diff.output in outputs
            case FailureKind.METADATA_MISMATCH:
                launched = self.parts.program.mesh is not None and self.parts.program.mesh.launched
                said = ("presence", *PROPERTIES, *["replicas"] * launched)
                return diff.output in outputs and what in said
            case FailureKind.MUTATION if diff.output == GLOBAL:
                return what in GLOBAL_STATE
            case FailureKind.MUTATION:
                named = is_member(diff.output, self.parts.names)
                return named and what in ("storage", *PROPERTIES)
        return True

    # -- calls -------------------------------------------------------------------------------

    def arguments(self, double: bool = False) -> str:
        """The arguments by name, float tensors in float64 with `double`."""
        floating = self.floating if double else set()
        names = [f"{name}.double()" if name in floating else name for name in self.parts.names]
        return ", ".join(names)

    @property
    def name(self) -> str | None:
        """The output whose numbers are wrong, or may be where the process dies; None where no
        number is."""
        failure, outputs = self.failure, self.parts.run.result_names()
        if failure.signal is not None and failure.kind is not FailureKind.HANG:
            return outputs[0]
        numeric = failure.kind in (FailureKind.WRONG_RESULT, FailureKind.NONFINITE)
        if not numeric or failure.raised is not None or not failure.diffs:
            return None
        diff = failure.diffs[0]
        return diff.output if diff.output in outputs and diff.what != "nan" else None

    def value(self, function: str, output: str, double: bool = False) -> str:
        """One output of a run of `function`, as an expression."""
        if self.simple:
            return f"{function}({self.arguments(double)})"
        if function == "reference" and self.parts.run.loop is not None:
            place = self.parts.run.result_names().index(output)
            result = f"reference({self.arguments(double)})"
            return f"{result}[{place}]" if self.parts.run.gives_tuple else result
        comma = "," if len(self.parts.names) == 1 else ""
        return f'{self.runner(function)}({function}, ({self.arguments(double)}{comma}))["{output}"]'

    def runner(self, function: str) -> str:
        """The name of what runs `function` in its modes."""
        if function == "reference":
            return "run"
        return modes.runner(self.parts.program, function == "compiled")

    def start(self) -> Check:
        """A check with nothing in it yet."""
        return Check(run=not self.simple, compiled=self.compiled)

    def expected(self, name: str, check: Check) -> Block:
        """Statements that set `expected` to the float64 reference's output: its body in place for
        a single plain call, else a call of it."""
        program = self.parts.program
        several = program.calls or program.transform != "none" or program.surround.layers > 1
        if not self.simple or several:
            check.reference = True
            return [f"expected = {self.value('reference', name, double=True)}"]
        floats = [name for name in self.parts.names if name in self.floating]
        names = ", ".join(floats)
        [[_, *body]] = self.parts.reference
        lines = compact_grids([line.removeprefix("    ") for line in body])
        last = lines.pop().removeprefix("return ")
        if lines and last == name and lines[-1].startswith(f"{name} = "):
            last = lines.pop().removeprefix(f"{name} = ")
        if any(re.match(rf"\s*(\w+, )*{name}\b(, \w+)* = ", line) for line in lines):
            # In its place the body would overwrite what it is compared with.
            check.reference = True
            return [f"expected = {self.value('reference', name, double=True)}"]
        return [f"{names} = (t.double() for t in ({names}))", *lines, f"expected = {last}"]

    def expected_after(self, name: str, check: Check) -> Block:
        """As `expected`, for after the run; where that writes its arguments, nothing, as it is put
        before the statements of the check."""
        lines = self.expected(name, check)
        if self.parts.run.loop is None or not self.parts.run.loop.written:
            return lines
        check.statements = [*lines, *check.statements]
        return []

    @property
    def floating(self) -> set[str]:
        """The arguments that are float tensors."""
        main = {*self.parts.names} - {*self.parts.inputs.arguments} - self.numbers
        return main | {*self.parts.inputs.floating}

    @property
    def numbers(self) -> set[str]:
        """The arguments that are Python numbers."""
        argument = self.parts.program.argument
        plain = argument is not None and argument.given != "tensor"
        return {"scale"} if plain and self.parts.scene.scale_varies else set()

    # -- checks ------------------------------------------------------------------------------

    def just_run(self, again: bool = False) -> Check:
        """For exceptions, crashes and hangs: the statements alone; `again` is as in `Run.body`."""
        if self.failure.phase is Phase.BUILD:
            return Check(inputs_only=True)
        if self.failure.phase is Phase.REFERENCE:
            body = self.parts.run.body(f"reference({self.arguments(double=True)})", unpack=False)
            return Check(without_return(body), reference=True)
        call = f"{self.function}({self.arguments()})"
        body = self.in_modes(self.parts.run.body(call, unpack=False, again=again))
        device = self.parts.run.scene.device
        # What a kernel does wrong there is told when somebody waits for it.
        waits = [] if device == "cpu" else [f"torch.{device}.synchronize()"]
        return Check(without_return(body), last=waits, compiled=self.compiled)

    def not_nan(self, diff: Diff) -> Check:
        """NaN is missing where the reference has it."""
        check, name = self.start(), diff.output
        check.statements = [f"{name} = {self.value(self.function, name)}"]
        check.last = self.expected(name, check)
        check.last.append(
            f'assert {name}[expected.isnan()].isnan().all(), "{name} lacks NaN where it is due"'
        )
        return check

    def in_modes(self, body: Block) -> Block:
        """The statements of `run`, within the modes that the failing run is in."""
        before, after = modes.default_dtype(self.parts.program)
        body = [*before, *body, *after]
        if self.compiled and (context := modes.compiled_autograd(self.parts.program)):
            body = [f"with {context}:", *indented(body)]
        return body

    def wrong_result(self, diff: Diff) -> Check:
        """The output is off by more than its budget."""
        if diff.what == "nan":
            return self.not_nan(diff)
        check, name = self.start(), diff.output
        check.statements = [f"{name} = {self.value(self.function, name)}"]
        judged, why = "", []
        if diff.block is not None:
            start, stop = map(int, diff.block)
            judged = (
                f".flatten()[{start}:{stop}]" + ".nan_to_num(0, 0, 0)" * self.may_be_nonfinite()
            )
            why = ["# Elsewhere values are larger, and rounding errors with them."]
        elif self.may_be_nonfinite():
            judged = f"[expected.isfinite() & {name}.isfinite()]"
        budget = number(diff.budget or 0)
        check.last = [
            *self.expected_after(name, check),
            *why,
            f"error = ({name} - expected){judged}.abs().max().item()",
            f'assert error <= {budget}, f"{name} is off by {{error:.3g}}"',
        ]
        return check

    def nonfinite(self, diff: Diff) -> Check:
        """The output is not finite where it should be."""
        check, name = self.start(), diff.output
        check.statements = [f"{name} = {self.value(self.function, name)}"]
        if self.may_be_nonfinite():
            check.last = self.expected_after(name, check)
            finite = f"{name}[expected.isfinite()].isfinite().all()"
        else:
            finite = f"{name}.isfinite().all()"
        check.last.append(f'assert {finite}, "{name} is not finite"')
        return check

    def far_off(self, name: str) -> Check:
        """The output is far off, or NaN: for what memory decides."""
        check = self.start()
        check.statements = [f"{name} = {self.value(self.function, name)}"]
        judged = "[expected.isfinite()]" if self.may_be_nonfinite() else ""
        check.last = [
            *self.expected(name, check),
            f"error = ({name} - expected){judged}.abs().max().item()",
            "# Not so if it is NaN, nor if it is off by a tenth of the largest value.",
            f"largest = expected{judged}.abs().max().item()",
            f'assert error <= 0.1 * largest, f"{name} is off by {{error:.3g}}"',
        ]
        return check

    def may_be_nonfinite(self) -> bool:
        """Whether a correct result may hold NaN or infinities: rows that see nothing in attention
        written by hand, values that overflow."""
        p = self.parts.program
        values = {p.q.values, p.k.values, p.v.values}
        dtypes = {p.q.dtype, p.k.dtype, p.v.dtype, p.autocast}
        unseen = self.parts.plugin.nan_where_nothing_is_seen and p.mask is not None
        overflow = "float16" in dtypes and values & {"large", "huge"}
        overflow = overflow or values & {"nan", "inf"}
        return bool(unseen or overflow or "lse" in self.parts.run.outputs)

    def metadata(self, diff: Diff) -> Check:
        """A property of the output is another than that of eager, or of the reference."""
        name, what = diff.output, diff.what
        if what == "presence":
            check = Check(run=True, compiled=self.compiled)
            run = self.runner(self.function)
            check.statements = [f"outputs = {run}({self.function}, ({self.arguments()},))"]
            check.last = [f'assert "{name}" in outputs']
            return check
        check = self.start()
        if what == "replicas":
            return self.replicas(check, name)
        check.reference = not self.compiled
        other = "attention" if self.compiled else "reference"
        check.statements = [f"{name} = {self.value(self.function, name)}"]
        check.last = [f"expected = {self.value(other, name)}"]
        actual, expected = self.property(what, name), self.property(what, "expected")
        check.functions = self.functions(what)
        check.last.append(f"assert {actual} == {expected}, ({actual}, {expected})")
        return check

    def replicas(self, check: Check, name: str) -> Check:
        """Ranks have other bits of an output that each of them has whole."""
        mesh = self.parts.program.mesh
        assert mesh is not None
        check.statements = [f"{name} = {self.value(self.function, name)}"]
        check.last = [
            f"others = [None] * {mesh.world_size}",
            f"dist.all_gather_object(others, {name}.detach())",
            f"same = [torch.allclose(t, {name}, rtol=0, atol=0, equal_nan=True) for t in others]",
            f'assert all(same), f"{name} is the same on ranks: {{same}}"',
        ]
        return check

    def functions(self, what: str) -> list[Block]:
        """What a property's expression calls."""
        if what == "aliases":
            others = {*self.parts.inputs.arguments, *self.numbers}
            main = ", ".join(name for name in self.parts.names if name not in others)
            memory = "untyped_storage().data_ptr()"
            shares = f"other.{memory} == t.{memory}"
            return [["def aliases(t):", f"    return [{shares} for other in ({main})]"]]
        return [STRIDES] if what == "stride" else []

    def property(self, what: str, name: str) -> str:
        """A property of the tensor `name`, as an expression."""
        if what in ("stride", "aliases"):
            return f"{'strides' if what == 'stride' else what}({name})"
        return f"{name}.{what}{'()' if what == 'storage_offset' else ''}"

    def nondeterminism(self, diff: Diff) -> Check:
        """The same call gives another result."""
        check, name = self.start(), diff.output
        check.statements = [f"{name} = {self.value(self.function, name)}"]
        again = f"torch.allclose(again, {name}, rtol=0, atol=0, equal_nan=True)"
        check.last = [
            "for _ in range(10):",
            f"    again = {self.value(self.function, name)}",
            f'    assert {again}, "the same call gives another {name}"',
        ]
        return check

    def mutation(self, diff: Diff) -> Check:
        """An argument, or a global state, has changed."""
        run = self.just_run(again=diff.output == GLOBAL)  # not a draw of the script's own
        if diff.output == GLOBAL:
            state = GLOBAL_STATE[diff.what]
        elif diff.what == "storage":
            state = f"bytes({diff.output}.untyped_storage())"
        else:
            state = self.property(diff.what, diff.output)
            run.functions = self.functions(diff.what)
        run.statements = [f"before = {state}", *run.statements]
        run.last = [f'assert {state} == before, "{diff.output} has changed"']
        return run

    def growth(self) -> Check:
        """Compiles once to warm up, then with some steps less and with all of them."""
        run = self.just_run()
        body = ["torch._dynamo.reset()", "began = time.process_time()", *run.statements]
        body.append("seconds.append(time.process_time() - began)")
        times = most_steps(self.parts.program.score_mod)
        run.statements = [
            "seconds = []",
            f"for times in (2, {times - STRIDE}, {times}):",
            *indented(body),
        ]
        run.last = [f"assert seconds[2] < {TOO_MUCH} * seconds[1], seconds"]
        return run

    def compilations(self, diff: Diff) -> Check:
        run = self.just_run()
        if diff.what == "execution" and diff.output == "flex_attention":
            run.first = [UNFUSED]
            return run
        if diff.what == "execution":
            run.last = [
                'reasons = torch._dynamo.utils.counters["unimplemented"]',
                'assert not any("recompile limit" in reason for reason in reasons)',
            ]
            return run
        if diff.what == "graph":
            run.last = [
                'breaks = torch._dynamo.utils.counters["graph_break"]',
                "assert not breaks, list(breaks)",
            ]
            return run
        found = re.search(r"[0-9]{1,9}", diff.expected)
        allowed = int(found.group()) if found else 1
        run.last = [
            'count = torch._dynamo.utils.counters["stats"]["unique_graphs"]',
            f'assert count <= {allowed}, f"compiled {{count}} times"',
        ]
        return run

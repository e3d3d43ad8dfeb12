"""Reproductions of several ranks: what is done once stands where it is done, not in a function.

Their scripts hold the method beside the attention, so that every line counts. Nothing is computed
otherwise: the statements are those of `attention`, `run` and `reference`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from attnfuzz.generators.render.check import Check
from attnfuzz.generators.render.fold import WIDTH
from attnfuzz.generators.render.parts import Block, Parts

_ASSIGNED = re.compile(r"\s*((?:\w+, )*\w+),? = ")
_DRAWN = re.compile(r"([qkv]) = (torch\.randn?\([^()]*\)(?:\.requires_grad_\(\))?)")


def in_place(parts: Parts, check: Check) -> Check:
    """The check without functions that it calls once; as it is, where they are more than their
    statements, or compiled as a whole."""
    p = parts.program
    if p.mesh is None or p.mesh.method is None or check.inputs_only or parts.parameters:
        return check
    if check.compiled:
        local = p.compile is not None and p.compile.via == "local"
        return _called_in_place(parts, check) if local and not check.run else check
    return _called_in_place(parts, _trained_in_place(parts, _run_in_place(parts, check)))


def drawn_together(lines: Block) -> Block:
    """The statements that draw q, k and v, each from a normal distribution, with those that are
    alike as one."""
    kept: Block = []
    alike: list[str] = []
    for line in lines:
        found = _DRAWN.fullmatch(line)
        value = found[2] if found else None
        if found and alike and kept[-1] == _together(alike, found[2]):
            kept.pop()
        else:
            alike = []
        if found and value:
            alike.append(found[1])
            line = _together(alike, value)
        kept.append(line)
    return kept


def _together(names: Sequence[str], value: str) -> str:
    drawn = value if len(names) == 1 else f"({value} for _ in range({len(names)}))"
    return f"{', '.join(names)} = {drawn}"


def _run_in_place(parts: Parts, check: Check) -> Check:
    """One gradient, without `run` and `reference`."""
    run, names = parts.run, parts.names
    arguments = ", ".join(names)
    calls = "\n".join([*check.statements, *check.last])
    training = parts.program.training
    plain = training is not None and training.grad_layout == "contiguous" and not training.double
    if not check.run or not plain or run.outputs != ("out",) or len(run.wrt) != 1:
        return check
    (name,) = (f"d{one}" for one in run.wrt)
    first = f'{name} = run(attention, ({arguments}))["{name}"]'
    at = next((i for i, line in enumerate(check.last) if "run(reference" in line), None)
    if check.statements != [first] or calls.count("run(") != (1 if at is None else 2):
        return check
    statements = run.body(f"attention({arguments})", unpack=False)[:-1]
    last = check.last
    if at is not None:
        [[_, *body]] = parts.reference
        floats = [one for one in names if one not in parts.inputs.arguments]
        whole = ", ".join(floats)
        body = [line.removeprefix("    ") for line in body]
        body[-1] = body[-1].replace("return ", "out = ", 1)
        rebound = {*run.wrt} & {target for line in body for target in _assigned(line)}
        if rebound or ".double()" not in check.last[at]:  # metadata is compared as it is
            return check
        grad = f"(expected,) = torch.autograd.grad(out, {run.wrt[0]}, dout.double())"
        doubled = f"{whole} = (t.double() for t in ({whole}))"
        last = [*last[:at], doubled, *_merged(body), grad, *last[at + 1 :]]
    return replace(check, statements=statements, last=last, run=False, reference=False)


def _trained_in_place(parts: Parts, check: Check) -> Check:
    """Without `attention`, where that is called once and a gradient of the result is taken: what it
    writes over is kept as `given`, of which the gradient is, and of which the reference is."""
    *_, [head, *body] = parts.attention
    floats = [one for one in parts.names if one not in parts.inputs.arguments]
    whole, training = ", ".join(floats), parts.program.training
    call = f"out = attention({', '.join(parts.names)})"
    calls = "\n".join([*check.statements, *check.last])
    returns = [line for line in body if line.lstrip().startswith("return ")]
    once = check.statements[:1] == [call] and len(re.findall(r"\battention\b", calls)) == 1
    if training is None or check.run or not once or returns != body[-1:]:
        return check
    body = [line.removeprefix("    ") for line in body]
    rebound = {target for line in body for target in _assigned(line)} & {*parts.names}
    after, last = _seeded_in_place(check.statements[1:]), check.last
    if rebound:
        leaves = [re.fullmatch(r"(.* = torch\.autograd\.grad\(out, )(\w+)\b(.*)", a) for a in after]
        doubled = f"{whole} = (t.double() for t in ({whole}))"
        found = [one for one in leaves if one is not None]
        read = re.findall(rf"\b(?:{'|'.join(floats)})\b", "\n".join(after))
        if not rebound <= {*floats} or len(found) != 1 or read != [found[0][2]]:
            return check
        if last[:1] != [doubled] and re.search(rf"\b(?:{'|'.join(floats)})\b", "\n".join(last)):
            return check
        leaf = f"given[{floats.index(found[0][2])}]"
        after = [
            f"{one[1]}{leaf}{one[3]}" if one else a for one, a in zip(leaves, after, strict=True)
        ]
        last = [line.replace(doubled, f"{whole} = (t.double() for t in given)") for line in last]
        body = [f"given = {whole}", *body]
    body[-1] = body[-1].replace("return ", "out = ", 1)
    return replace(check, statements=[*body, *after], last=last, in_place=True)


def _seeded_in_place(lines: Block) -> Block:
    """The lines with a generator where it is used, if that is once."""
    made = "generator = "
    if not lines or not lines[0].startswith(made):
        return lines
    used = [
        line.replace("generator=generator", f"generator={lines[0][len(made) :]}") for line in lines
    ]
    once = "\n".join(lines[1:]).count("generator") == 2
    return used[1:] if once and max(map(len, used[1:])) <= WIDTH else lines


def _called_in_place(parts: Parts, check: Check) -> Check:
    """Without `attention`, where that is called by the only statement; where it calls a function
    that is compiled, with that."""
    original = check
    *_, [head, *body] = parts.attention
    call = head.removeprefix("def ").removesuffix(":")
    if check.compiled:
        [[compiling], _] = parts.compiled
        body = [re.sub(r"\battend\b", "compiled_attend", line) for line in body]
        call = re.sub(r"^attention\((.*), attend=attend\)$", r"compiled(\1)", call)
        check = replace(check, functions=[*check.functions, [compiling]])
    found = re.fullmatch(rf"(?:(\w+) = )?{re.escape(call)}", "\n".join(check.statements))
    returns = [line for line in body if line.lstrip().startswith("return ")]
    if not found or len(returns) != 1 or re.search(r"\battention\(|compiled\(", str(check.last)):
        return original
    expected = _beforehand(parts, check.last)
    if expected is None:
        return original
    before, last = expected
    body = [line.removeprefix("    ") for line in body]
    body[-1] = body[-1].replace("return ", f"{found[1]} = " if found[1] else "", 1)
    return replace(check, before=before, statements=body, last=last, in_place=True, compiled=False)


def _beforehand(parts: Parts, lines: Block) -> tuple[Block, Block] | None:
    """Those of `lines` that compute what is expected, as they can stand before arguments are
    written over, and the others; None where they write over arguments themselves."""
    at = next((i for i, line in enumerate(lines) if line.startswith("expected = ")), None)
    if at is None:
        return [], lines
    before, last = lines[: at + 1], lines[at + 1 :]
    doubled = re.fullmatch(r"([\w, ]+) = \(t\.double\(\) for t in \(\1\)\)", before[0])
    if not doubled:
        return None
    floats = "|".join(doubled[1].split(", "))
    before = [re.sub(rf"\b({floats})\b(?!\.shape)", r"\1.double()", line) for line in before[1:]]
    targets = {name for line in before for name in _assigned(line)}
    if targets & {*parts.names} or any(".double() = " in line for line in before):
        return None
    return _merged(before), last


def _assigned(line: str) -> list[str]:
    found = _ASSIGNED.match(line)
    return found[1].split(", ") if found else []


def _merged(lines: Block) -> Block:
    """The lines with the scores where they are used, if nothing else is done to them."""
    if len(lines) < 2 or not lines[-2].startswith("scores = ") or lines[-1].count("scores") != 1:
        return lines
    value = lines[-2].removeprefix("scores = ")
    together = lines[-1].replace("scores", value)
    return [*lines[:-2], together] if len(together) <= WIDTH else lines

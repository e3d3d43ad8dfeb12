"""`run`: one call, and the gradients of a training program, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnfuzz.generators.kernels.base import Loop
from attnfuzz.generators.model.expressions import uses_score
from attnfuzz.generators.model.program import Training
from attnfuzz.generators.render import dropout
from attnfuzz.generators.render.scene import Scene, dtype_argument, indented


@dataclass(frozen=True)
class Run:
    """What `run` is about: the arguments' names, those with a gradient, the outputs' names, and
    those of the outputs that may have one (`learned`).
    With dropout (`drops`) it completes what is called; see `generators.render.dropout`."""

    scene: Scene
    names: list[str]
    wrt: list[str]
    outputs: tuple[str, ...]
    learned: tuple[str, ...]
    drops: bool = False
    loop: Loop | None = None

    def function(self, reference: bool = False) -> list[str]:
        """The definition of `run(fn, args)`, which returns a dict of result tensors by name; `fn`
        may be the `reference`."""
        lines = self.body("fn(*args)", unpack=True)
        if self.loop is not None and reference:
            names = ", ".join(f'"{name}"' for name in self.result_names())
            whole = f"    return dict(zip(({names}), fn(*args)))"
            if not self.gives_tuple:
                whole = '    return {"out": fn(*args)}'
            lines = ["if fn is reference:  # the whole sequence at once", whole, *lines]
        return ["def run(fn, args):", *indented(lines)]

    def body(self, call: str, unpack: bool, again: bool = True) -> list[str]:
        """The statements, ending in `return {name: tensor}`; `unpack` takes the arguments that get
        gradients out of `args` first, `again` is as for `output_gradients`."""
        if self.drops:
            arguments = call[call.index("(") + 1 : -1]
            return dropout.seeded(self._body(f"undropped({call}, {arguments})", unpack, again))
        return self._body(call, unpack, again)

    def _body(self, call: str, unpack: bool, again: bool) -> list[str]:
        p = self.scene.program
        if self.loop is not None:
            return self.in_parts(self.loop, call.partition("(")[0], unpack)
        if p.transform == "grad":
            return [f"dq, dk, dv = {call}", 'return {"dq": dq, "dk": dk, "dv": dv}']
        if p.transform == "jvp":
            return [f"out, tangent = {call}", 'return {"out": out, "tangent": tangent}']
        if p.training is None or not self.wrt:
            return self.forward(call)
        return self.backward(p.training, call, unpack, again)

    def result_names(self) -> tuple[str, ...]:
        """The keys of the dict that `run` returns."""
        p = self.scene.program
        if self.loop is not None:
            return ("out", *self.loop.kept)
        if p.transform == "grad":
            return ("dq", "dk", "dv")
        if p.transform == "jvp":
            return ("out", "tangent")
        second = tuple(f"dd{n}" for n in self.wrt) if self.double else ()
        return (*self.outputs, *(f"d{name}" for name in self.wrt), *second)

    @property
    def gives_tuple(self) -> bool:
        """Whether the reference gives several results, where it is one of a loop."""
        return self.loop is not None and bool(self.loop.kept)

    @property
    def differentiated(self) -> tuple[str, ...]:
        """The outputs that have a gradient."""
        return tuple(name for name in self.learned if name != "excess")

    @property
    def double(self) -> bool:
        """Whether the gradients are differentiated again: that of v alone does not depend on v."""
        training = self.scene.program.training
        return training is not None and training.double and self.wrt not in ([], ["v"])

    def forward(self, call: str) -> list[str]:
        """Statements that return the outputs of `call`, in the program's grad mode."""
        mode = self.scene.program.grad_mode
        if self.outputs == ("out",):
            lines = [f'return {{"out": {call}}}']
        else:
            lines = [f"{', '.join(self.outputs)} = {call}", f"return {_dict(_same(self.outputs))}"]
        if mode == "default":
            return lines
        return [f"with torch.{mode}():", *indented(lines)]

    def in_parts(self, loop: Loop, function: str, unpack: bool) -> list[str]:
        """As `body`, for calls of `function` one after the other."""
        results = {"out": "out", **_same(loop.kept)}
        target = f"{', '.join(results)} = " if loop.carried else "out = "
        lines = [f"{', '.join(self.names)} = args"] if unpack else []
        lines += [f"{name} = []" for name in loop.lists]
        if len(loop.parts) == 1:
            lines.append(f"{target}{function}({', '.join((*loop.cut, *loop.arguments))})")
        else:
            results["out"] = f"torch.cat(outs, dim={loop.joined})"
            index = f"[{':, ' * loop.length}start:stop]"
            lines += ["outs = []", f"for start, stop in {list(loop.parts)}:"]
            taken = [f"{name}{index}" for name in loop.cut]
            if len(taken) > 1:
                cut = f"part = [t{index} for t in {_tuple(list(loop.cut))}]"
                lines, taken = [*lines, *indented([cut])], ["*part"]
            call = f"{function}({', '.join((*taken, *loop.arguments))})"
            kept = [target + call, "outs.append(out)"] if loop.carried else [f"outs.append({call})"]
            lines += indented(kept)
        lines.append(f"return {_dict(results)}")
        mode = self.scene.program.grad_mode
        return lines if mode == "default" else [f"with torch.{mode}():", *indented(lines)]

    def backward(self, training: Training, call: str, unpack: bool, again: bool) -> list[str]:
        """As `body`, for a program that trains: outputs and gradients, second ones if `double`."""
        if self.scene.program.surround.checkpoint == "reentrant":
            return self.into_leaves(training, call, unpack, again)
        outputs = ", ".join(self.outputs)
        lines = [*self.unpacking(), f"{outputs} = {call}"] if unpack else [f"{outputs} = {call}"]
        heads = [*self.output_gradients(training.grad_layout, again)]
        what = [_tuple(list(self.differentiated)), _tuple(self.wrt)]
        if training.grad_layout == "expanded":
            what[0] = " + ".join(f"{name}.sum()" for name in self.differentiated)
        else:
            gradients = [f"d{name}" for name in self.differentiated]
            what.append(gradients[0] if len(gradients) == 1 else f"({', '.join(gradients)})")
        if self.may_be_unused:
            what.append("materialize_grads=True")
        names = [f"d{name}" for name in self.wrt]
        lines += heads
        targets = _unpacked(names)
        if not self.double:
            lines.append(f"{targets} = torch.autograd.grad({', '.join(what)})")
        else:
            lines.append(f"grads = torch.autograd.grad({', '.join(what)}, create_graph=True)")
            lines.append(f"{targets} = grads")
            second = [f"dd{name}" for name in self.wrt]
            squares = "sum(grad.square().sum() for grad in grads)"
            grad = f"torch.autograd.grad({squares}, {_tuple(self.wrt)}, materialize_grads=True)"
            lines.append(f"{_unpacked(second)} = {grad}")
        return [*lines, f"return {_dict(_same(self.result_names()))}"]

    def into_leaves(self, training: Training, call: str, unpack: bool, again: bool) -> list[str]:
        """Gradients by `backward`, as reentrant checkpoints refuse `torch.autograd.grad`: into
        fresh leaves, so that nothing adds up over runs."""
        lines = []
        if unpack:
            names, leaves = ", ".join(self.names), ", ".join(self.wrt)
            fresh = f"(t.detach().requires_grad_() for t in ({leaves}))"
            if len(self.wrt) == 1:
                fresh = f"{leaves}.detach().requires_grad_()"
            lines = [f"{names} = args", f"{leaves} = {fresh}"]
            call = f"fn({names})"
        lines.append(f"{', '.join(self.outputs)} = {call}")
        lines += self.output_gradients(training.grad_layout, again)
        what = _tuple(list(self.outputs)) + ", " + _tuple([f"d{name}" for name in self.outputs])
        if training.grad_layout == "expanded":
            what = " + ".join(f"{name}.sum()" for name in self.outputs)
        lines.append(f"torch.autograd.backward({what})")
        entries = {n: n for n in self.outputs} | {f"d{n}": f"{n}.grad" for n in self.wrt}
        return [*lines, f"return {_dict(entries)}"]

    @property
    def may_be_unused(self) -> bool:
        """Whether some input does not reach the output: q and k where the score is ignored."""
        score = self.scene.program.score_mod
        ignored = score is not None and not uses_score(score)
        # SDPA of nothing does not look at its mask.
        empty = "attn_mask" in self.wrt and any(0 in pair for pair in self.scene.lengths)
        return empty or (ignored and not {*self.wrt}.isdisjoint(("q", "k", "wq", "wk")))

    def unpacking(self) -> list[str]:
        """Takes the arguments that get gradients out of `args`, if these are not all of them."""
        last = max(self.names.index(name) for name in self.wrt)
        targets = [name if name in self.wrt else "_" for name in self.names[: last + 1]]
        rest = ", *_" if last + 1 < len(self.names) else "," if len(targets) == 1 else ""
        return [f"{', '.join(targets)}{rest} = args"]

    def output_gradient(self, name: str, layout: str) -> str:
        """A statement for the gradient of the output `name`."""
        swapped = layout == "transposed" and name == "out"
        shape = f"{name}.transpose(1, 2).shape" if swapped else f"{name}.shape"
        back = ".transpose(1, 2)" if swapped else ""
        return f"d{name} = torch.randn({shape}, dtype={name}.dtype){back}"

    def output_gradients(self, layout: str, again: bool) -> list[str]:
        """Statements for `dout` (and `dlse`), random. Where `again` says that they may be run for
        another layer too, they have a generator of their own and the result's dtype, whatever that
        of `fn`, so that every layer is given the same numbers."""
        if layout == "expanded":
            return []
        if not again:
            return [self.output_gradient(name, layout) for name in self.differentiated]
        written = self.scene.program.modes.default_dtype != "float32"
        kind = f", dtype=torch.{self.scene.dtype}" if written else dtype_argument(self.scene.dtype)
        device = self.scene.inputs_device
        on = "" if device == "cpu" else f'"{device}"'
        lines = [f"generator = torch.Generator({on}).manual_seed(1)"]
        for name in self.differentiated:
            dtype = kind if name == "out" else ", dtype=torch.float32" if written else ""
            swapped = layout == "transposed" and name == "out"
            shape = f"{name}.transpose(1, 2).shape" if swapped else f"{name}.shape"
            like = f"{name}.dtype" if self.scene.device == "cpu" else name
            noise = f"torch.randn({shape}, generator=generator{dtype}).to({like})"
            lines.append(f"d{name} = {noise}{'.transpose(1, 2)' if swapped else ''}")
        return lines


def _dict(entries: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": {text}' for name, text in entries.items()) + "}"


def _same(names: tuple[str, ...]) -> dict[str, str]:
    return {name: name for name in names}


def _tuple(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _unpacked(names: list[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)

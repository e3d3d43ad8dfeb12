"""What a kernel's plug-in says: how it is written, what it supports, how it is simplified.

A new kernel is a package beside this module, named as its `kind`, with its dataclass in `spec`, an
object `PLUGIN` in `plugin` and a class `Drawing` in `drawing` (see `generators.strategies.kernel`),
and its dataclass in the union in `specs`. Imports of torch's names are found in the rendered text
itself (see `generators.render.imports`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, TypeVar

from attnfuzz.generators.kernels.refusal import Refusal
from attnfuzz.generators.kernels.specs import Kernel
from attnfuzz.generators.model.choices import choices
from attnfuzz.generators.model.problem import Problem
from attnfuzz.generators.model.program import Argument, Program
from attnfuzz.generators.model.tree import changed
from attnfuzz.generators.render.mods import Mod
from attnfuzz.generators.render.scene import Scene

_TARGET = re.compile(r"(\w+) = ")
_INDEX = re.compile(r"\b(?:q_idx|kv_idx)\b")  # a mod's own


@dataclass
class Inputs:
    """What a kernel needs beside q, k and v.

    `statements` make it in the body of `inputs`; `arguments` are the names handed on to the call,
    `learnable` those of them with a gradient, `floating` those that are float tensors. `mods` are
    defined at top level. `fresh` are the statements that make closures and BlockMasks,
    `fresh_names` what they make: a program that reuses these makes them once for each shape.
    `seen` are statements that set a bool `mask` for choosing where k may have NaN. `imports` are
    import statements that cannot be found in the text, `environment` variables that have to be set
    before them, `set_up` statements after them, and `globals` statements after the mods.
    `functions` are defined at top level, behind the mods. `meant` are those of `arguments` that the
    reference alone reads.
    """

    statements: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    learnable: list[str] = field(default_factory=list)
    floating: list[str] = field(default_factory=list)
    mods: list[Mod] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    fresh_names: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    set_up: list[str] = field(default_factory=list)
    globals: list[str] = field(default_factory=list)
    functions: list[list[str]] = field(default_factory=list)
    meant: tuple[str, ...] = ()

    def without_meaning(self) -> None:
        """Takes away what the reference alone reads, and the statements that only this needed."""
        if not self.meant:
            return
        self.arguments = [name for name in self.arguments if name not in self.meant]
        mods = (_INDEX.sub("", line) for mod in self.mods for line in mod.definition)
        text = "\n".join([*self.fresh, *self.seen, *self.arguments, *mods])
        kept: list[str] = []
        for line in reversed(self.statements):
            target = _TARGET.match(line)
            if target is None or re.search(rf"\b{target[1]}\b", text):
                kept.insert(0, line)
                text += "\n" + line.partition(" = ")[2] if target else "\n" + line
        self.statements = kept


@dataclass
class Body:
    """A call: context managers around it, statements before it, and the expressions it returns."""

    result: list[str]
    statements: list[str] = field(default_factory=list)
    contexts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Loop:
    """A run that calls the function for `parts` of a sequence, each from `start` to `stop`: with
    these parts, in dimension `length`, of the arguments `cut`, and then with `arguments`:
    expressions of `start`, `stop` and what else `run` is given. `further` are the names of
    arguments that `run` is not given, of which `lists` are empty at first. The function returns its
    result, and anew what is `kept`, where these are `carried` on; `joined` is the dimension in
    which its results are put together. `kept` are names of arguments that are results of the run
    too: those carried on, or written in place (`written`). `shapes`: how many calls differ in what
    they may be compiled anew for."""

    parts: tuple[tuple[int, int], ...]
    cut: tuple[str, ...]
    length: int
    arguments: tuple[str, ...]
    further: tuple[str, ...]
    lists: tuple[str, ...]
    kept: tuple[str, ...]
    carried: bool
    joined: int
    shapes: int

    @property
    def written(self) -> tuple[str, ...]:
        """The arguments that the function writes."""
        return () if self.carried else self.kept


LSE = "scores.logsumexp(dim=-1)"
"""The log-sum-exp `[B, Hq, Lq]` in plain tensor operations."""


@dataclass
class Meaning:
    """softmax(modified(scale * q k^T)) v. `modify` are statements that change `scores`
    `[B, Hq, Lq, Lkv]`; `prepare` are statements before that, which make q, k and v
    `[B, Hq, L, D]` of what the kernel is called on; `further` are expressions for its outputs
    beyond `out`, by name, that of the log-sum-exp by default; `zero_dead_rows`: rows that are -inf
    throughout give 0, not NaN; `scale` is an expression, None for 1; `finish` is a template for the
    result with `{out}` and the dimensions `{heads}` and `{length}` of it. Scores are constants
    where the expression `replaced` is true."""

    scale: str | None
    modify: list[str] = field(default_factory=list)
    zero_dead_rows: bool = False
    finish: str = "{out}"
    replaced: str | None = None
    prepare: list[str] = field(default_factory=list)
    further: Mapping[str, str] = field(default_factory=lambda: {"lse": LSE})


WITHOUT_DEAD_ROWS = (
    'dead = (scores == float("-inf")).all(dim=-1, keepdim=True)',
    "probs = torch.softmax(scores.masked_fill(dead, 0), dim=-1).masked_fill(dead, 0)",
)
"""Statements for the probabilities where rows that are -inf throughout give 0."""


Share = Literal["heads", "rows", "blocks", "operator", "block_mask", "one_block_mask"]
"""How ranks may share a kernel, with what belongs to each of its mask. It is called on some of the
`heads`, or on the `rows` of some queries: no extent of these is in its text. It means SDPA with a
bool mask, and is computed in `blocks` of keys by other means. It is the `operator` of fused SDPA,
causal or without a mask. It takes a plain BlockMask, or one that is alike for all heads."""

K = TypeVar("K", bound=Kernel)


class KernelPlugin(Generic[K]):
    """All that is particular to one kernel but how it is drawn. `spec_class` is its dataclass.

    Only `call` has no default, and one of `meaning` and `plain_body`. The defaults are those of a
    kernel that takes q, k and v and nothing else, and that torch never declines.
    """

    spec_class: type[K]

    package: ClassVar[str | None] = None
    """The distribution that it comes in, None for torch itself."""

    labels: ClassVar[tuple[str, ...]] = ()
    """What torch's issue tracker labels it with."""

    judged_in_issues_by: ClassVar[Literal["same", "flash_attn"]] = "same"
    """How those who get its issues judge numbers; see `generators.render.issue_script.Way`."""

    takes_score_mod: ClassVar[bool] = False
    """Whether a program's score modification is handed to it."""

    rebinds_query: ClassVar[bool] = False
    """Whether its statements give the name q to something else."""

    nan_where_nothing_is_seen: ClassVar[bool] = False
    """Whether a query that sees no key has NaN for its result."""

    interchangeable: ClassVar[bool] = True
    """Whether SDPA, flex_attention and attention by hand mean the same in its place: it has no
    mask of its own, which these would not be given."""

    has_fast_path: ClassVar[bool] = False
    """Whether it is a module with a fast path for inference, which it leaves in a mode."""

    is_sdpa: ClassVar[bool] = False
    """Whether it is SDPA, whatever back-end torch gives it to."""

    recognised_as_sdpa: ClassVar[bool] = False
    """Whether Inductor may recognise SDPA in it, and run that instead."""

    rewritable: ClassVar[bool] = False
    """Whether further draws may be written into the arguments of the first call: its results are
    tensors of their own."""

    computes_scale: ClassVar[bool] = False
    """Whether its scale may be computed from a size of q (`scale_from`)."""

    takes_nothing: ClassVar[frozenset[str]] = frozenset()
    """Which of "batch" and "heads" may be empty, beside the lengths."""

    spreads_itself: ClassVar[bool] = False
    """Whether it makes the group of its ranks, and deals out among them what each has whole."""

    refusals: ClassVar[tuple[Refusal, ...]] = ()
    """What torch declines by design of what its programs may require."""

    def spec(self, program: Program) -> K:
        """The program's kernel, which is this one."""
        kernel = program.kernel
        assert isinstance(kernel, self.spec_class)
        return kernel

    # How it is written.

    def inputs(self, scene: Scene) -> Inputs:
        """What it needs beside q, k and v."""
        return Inputs()

    def call(self, scene: Scene, inputs: Inputs) -> Body:
        """The kernel called on q, k, v and its arguments."""
        raise NotImplementedError

    def meaning(self, scene: Scene, inputs: Inputs) -> Meaning:
        """The same as plain tensor operations: softmax attention. Not asked for where there is a
        `plain_body`."""
        raise NotImplementedError

    def plain_body(self, scene: Scene, inputs: Inputs) -> Body | None:
        """The same as plain tensor operations, for what is more, or other, than the softmax
        attention of `meaning` (None): statements on what `call` is called on, in any precision, and
        an expression for each of `outputs`. What is around the kernel is added; it has no
        contexts."""
        return None

    def has_unread_nan(self, program: Program) -> bool:
        """Whether NaN lies where nothing may read it: beside a tensor."""
        return any(each.layout.unread == "nan" for each in (program.q, program.k, program.v))

    def takes(self, kernel: K) -> tuple[str, ...]:
        """Which of q, k and v it is handed."""
        return ("q", "k", "v")

    def handed_over(self, kernel: K) -> str:
        """The methods that turn q, k and v, `[B, H, L, D]`, into what it is handed."""
        return ""

    def with_extents(self, scene: Scene, lines: list[str]) -> list[str]:
        """`lines` of its function, after statements for the extents that they name."""
        return scene.with_extents(lines)

    def outputs(self, scene: Scene) -> tuple[str, ...]:
        """The names of what it returns: `out`, or `out` and `lse`."""
        return ("out",)

    def loop(self, program: Program, device: str = "cpu") -> Loop | None:
        """How a run on torch's `device` calls the function for parts of a sequence; None where it
        calls it once."""
        return None

    def imports(self, kernel: K) -> str | None:
        """The `module:name` that its programs import from outside torch, if the user named one."""
        return None

    def fused_operators(self, device: str) -> tuple[str, ...]:
        """The operators ("aten.…") that it is on torch's `device`, which a selective checkpoint
        saves."""
        return ()

    # What it supports.

    def problems(self, program: Program) -> Iterator[Problem]:
        """What it needs of the rest of the program and is not so."""
        yield from ()

    def gqa_enabled(self, kernel: K) -> bool:
        """Whether Hq may differ from Hkv as the kernel is called."""
        return True

    def selects_masked(self, kernel: K) -> bool:
        """Whether scores that a mask hides are replaced, whatever they are: NaN may be there."""
        return False

    def propagates_nan(self, kernel: K) -> bool:
        """Whether NaN in q, k or v is NaN in all that is computed of it, without a mask."""
        return False

    def keeps_layout(self, kernel: K) -> bool:
        """Whether its result is `[B, Hq, Lq, Dv]`."""
        return True

    def takes_argument(self, kernel: K, argument: Argument) -> bool:
        """Whether it may be given a number that is another in each call."""
        return False

    def with_computed(self, kernel: K, scored: bool) -> K:
        """The kernel whose mods capture what is computed where they are made, where there are mods
        (a score modification: `scored`) that may."""
        return kernel

    def wrappable(self, kernel: K) -> bool:
        """Whether it is a function of q, k, v and a mask, with the gradients of a plain softmax,
        which may be called through an operator and the like (`Surround.integration`)."""
        return False

    def distributable(self, kernel: K) -> bool:
        """Whether it may be given DTensors."""
        return False

    def shareable(self, kernel: K, how: Share) -> bool:
        """Whether ranks may share it like that."""
        return False

    def mask_shape(self, scene: Scene) -> tuple[int, ...]:
        """The shape of the mask tensor that it is given, right-aligned with `[B, Hq, Lq, Lkv]`, of
        a program whose ranks share heads, rows or blocks."""
        raise NotImplementedError

    def learns_mask(self, kernel: K) -> bool:
        """Whether a mask that it is given gets a gradient."""
        return False

    def learns(self, kernel: K) -> bool:
        """Whether further arguments of its own get gradients."""
        return False

    def has_own_mask(self, kernel: K) -> bool:
        """Whether it is handed a mask tensor that is not the program's."""
        return False

    def returns_lse(self, kernel: K) -> bool:
        """Whether it returns the log-sum-exp too."""
        return False

    def keys_by_identity(self, kernel: K) -> bool:
        """Whether a BlockMask is made in the attention function and kept by an object's `id`."""
        return False

    def fills_its_cache(self, program: Program) -> bool:
        """Whether each call makes the mask_mod of such a BlockMask anew: each one fills the cache
        further, on which the graph of the next depends."""
        return False

    def breaks(self, program: Program) -> tuple[str, ...]:
        """Texts of the reasons for which torch breaks the graph in it, by design."""
        return ()

    def dropout_p(self, kernel: K) -> float:
        """How likely each attention weight is dropped as it is called; see `render.dropout`."""
        return 0.0

    def droppable(self, kernel: K) -> K:
        """The kernel, without what does not go with dropout."""
        return kernel

    def draws_lengths(self, kernel: K) -> bool:
        """Whether lengths are among the numbers that are drawn: each further draw is a shape of
        its own then."""
        return False

    def depends_on_batch(self, kernel: K) -> bool:
        """Whether batch entries with the same q, k and v may have different results."""
        return False

    # How its programs are simplified, described and varied.

    def features(self, program: Program) -> Iterator[str]:
        """Every choice of the kernel that is not the default."""
        prefix = f"kernel.{program.kernel.kind}"
        yield prefix
        yield from choices(program.kernel, prefix)

    def plain(self, kernel: K) -> K:
        """The same kernel with defaults wherever its programs may have them."""
        return kernel

    def underneath(self, program: Program) -> Iterator[Program]:
        """The program with the kernel of torch that this one calls in its place, or of inputs that
        lie as it arranges them: what fails there too may be known. Not all are valid."""
        yield from ()

    def in_blocks(self, kernel: K, length: int) -> K:
        """The kernel with blocks of so many queries and keys, if it has blocks."""
        return kernel

    def without_groups(self, kernel: K) -> K:
        """The kernel for Hq = Hkv."""
        return kernel

    def distributed(self, kernel: K) -> K:
        """The kernel as it is called with DTensors."""
        return kernel

    def fitted(self, program: Program) -> Program:
        """The program, made to agree with its kernel after another part was changed."""
        return program if self.takes_score_mod else changed(program, score_mod=None)

    def smaller(self, program: Program) -> Iterator[Kernel]:
        """Kernels of any kind that may be simpler than the program's, the boldest change first."""
        yield from ()

    def variants(self, program: Program) -> Iterator[tuple[str, K]]:
        """This kernel in place of the program's own, which is `interchangeable`, in each way that
        there is, by name."""
        yield from ()

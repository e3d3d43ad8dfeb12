"""Text that comes from nobody we know: what breaks out of a literal, a name or a line, if anything
does."""

from __future__ import annotations

from hypothesis import strategies as st

FRAGMENTS = (
    '" + str(__import__("os").system("id > owned")) + "', "' + exec('raise SystemExit') + '",
    '"', "'", '"""', "'''", "\\", "\\\\", "\n", "\r", "\t", "\x00", "\x1b[31m", "\u2028", "\u202e",
    "\ufeff", "\N{PILE OF POO}", "{", "}", "{{q}}", "%s", "#", ",", ", ", ")", "](", " & ",
    " import ", "lambda", "return ", "B", "Lq", "Lkv", "q", "out", "attention", "torch",
    "torch.randn(2)",
    "checkpoint", "create_mask", "F.linear", "random.random()", "time.time", "tree_intervals(",
    "_quoted_0_", "_quoted_1_", "class", "None", "True", "range", "__builtins__", "print", "self",
    "def f():\n    pass", "it's", 'a"b\'c', "12", "-1", "1e999", "nan", "\u0663", "generator",
)  # fmt: skip
NAMES = (
    "range", "print", "torch", "F", "q", "B", "Lq", "attention", "attend", "reference", "compiled",
    "run", "inputs", "checkpoint", "Shard", "create_mask", "dist", "os", "match", "type", "_",
    "__name__", "__builtins__", "_quoted_0_", "CALLS", "MESH", "rope", "out", "fn", "args", "loss",
    "function", "range_function", "attention_function", "my", "kernels",
)  # fmt: skip
"""What Python takes for names, most of which mean something already."""


def texts(max_size: int = 60) -> st.SearchStrategy[str]:
    """Any text that UTF-8 can hold, of characters and of `FRAGMENTS`."""
    characters = st.text(st.characters(codec="utf-8"), max_size=8)
    pieces = st.lists(st.sampled_from(FRAGMENTS) | characters, max_size=4)
    return pieces.map(lambda some: "".join(some)[:max_size])


def targets() -> st.SearchStrategy[str]:
    """`module:function` as Python may name them."""
    names = st.sampled_from(NAMES)
    return st.builds("{}.{}:{}".format, names, names, names) | st.builds(
        "{}:{}".format, names, names
    )

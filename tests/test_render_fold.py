"""Long lines are broken without changing what they say."""

from __future__ import annotations

import ast

import pytest

from attnfuzz.generators.render.fold import WIDTH, fold

LONG = [
    "    out = flex_attention(" + ", ".join(f"argument_{i}=value_{i}" for i in range(12)) + ")",
    "return " + " | ".join(f"(q_idx // {i} == kv_idx // {i})" for i in range(1, 12)),
    "scores = " + "f(" * 8 + ", ".join(f"name_{i}" for i in range(20)) + ")" * 8,
    'assert error <= f(1.0), f("' + "x(" * 30 + '", ' + ", ".join(["value"] * 20) + ")",
    "x = torch.cat([f(a[b : b + 1, :], h, 'a, b') for b in torch.arange(3)], dim=-4).to("
    + "q.dtype_with_a_long_name).expand_as(scores_with_a_long_name)",
]


@pytest.mark.parametrize("line", LONG)
def test_fold_keeps_the_meaning(line: str) -> None:
    folded = fold(line)
    assert len(folded) > 1
    before, after = ("def f():\n" + text for text in (line, "\n".join(folded)))
    if not line.startswith(" "):
        before, after = (text.replace("\n", "\n ") for text in (before, after))
    assert ast.dump(ast.parse(before)) == ast.dump(ast.parse(after))


@pytest.mark.parametrize("line", LONG[:3])
def test_fold_fits(line: str) -> None:
    assert max(map(len, fold(line))) <= WIDTH


def test_short_lines_stay() -> None:
    assert fold("    q = torch.randn(1, 2, 3)") == ["    q = torch.randn(1, 2, 3)"]

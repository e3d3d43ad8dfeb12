"""What the README shows to be copied does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_strategies_serve_a_test_of_ones_own() -> None:
    (example,) = [
        text
        for text in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
        if "@given" in text
    ]
    compiled: list[str] = []

    def my_compiler(attention: Any) -> Any:
        compiled.append(attention.__name__)
        return attention

    names: dict[str, Any] = {"my_compiler": my_compiler}
    exec(compile(example, "<the example>", "exec"), names)  # else its source is looked up there
    few = settings(
        max_examples=10,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    few(names["test_my_compiler"])()
    assert set(compiled) == {"attention"}

"""Which of torch's files `reach.py` is about, which of their lines count, and the HTML page."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from coverage import Coverage, CoverageData
from coverage.plugin import FileReporter
from coverage.python import PythonFileReporter

ATTENTION = (
    "nn/attention/**/*.py",
    "_higher_order_ops/flex_attention.py",
    "_inductor/kernel/flex/*.py",
    "_inductor/codegen/cpp_flex_attention_template.py",
    "_inductor/fx_passes/fuse_attention.py",
    "nn/modules/activation.py",
    "nn/modules/transformer.py",
    "nested/_internal/sdpa.py",
    "distributed/tensor/experimental/_context_parallel/*.py",
)
"""Torch's own attention code in Python, as patterns below the folder of torch."""

FUSION = "torch/_inductor/fx_passes/fuse_attention.py"

PARTS = {
    "torch/nn/modules/activation.py": "MultiheadAttention",
    # The rest registers the patterns, once and before any program, from what is kept on disk.
    FUSION: r"_sfdp_(replacement_\d+|params_check|extra_check)",
}
"""Files of which only some functions and classes count: a regular expression of their names."""

OTHER_DEVICES = (
    "torch/nn/attention/_fa3.py",
    "torch/nn/attention/_fa4.py",
    "torch/nn/attention/_registry.py",  # of these two
    "torch/nn/attention/experimental/_scaled_dot_product_attention_quantized.py",  # FA3's
    "torch/_inductor/kernel/flex/flex_flash_attention.py",  # FA4's, as are the next two
    "torch/_inductor/kernel/flex/aux_vectorization.py",
    "torch/_inductor/kernel/flex/interval_mask_packing.py",
    "torch/_inductor/kernel/flex/flex_mps.py",
)
"""Files of FlashAttention 3 and 4 and of Apple's GPUs: no program on a CPU comes there."""


def attention_files(torch: Path) -> dict[str, Path]:
    """The files by name ("torch/nn/attention/bias.py"), in the order of `ATTENTION`; those without
    a function left out. `torch` is the folder of the package, symbolic links resolved."""
    found = [path for pattern in ATTENTION for path in sorted(torch.glob(pattern))]
    named = {f"torch/{path.relative_to(torch)}": path for path in found}
    return {name: path for name, path in named.items() if body_lines(path.read_text())}


def settings(files: Mapping[str, Path], folder: Path) -> str:
    """A configuration of coverage.py: it traces `files` alone, and writes to `folder`. From Python
    3.12 on the interpreter monitors their lines, where others are traced as well before that."""
    include = "".join(f"\n    {path}" for path in files.values())
    return (
        f"[run]\ndata_file = {folder}/coverage\nparallel = true\npatch = _exit\n"
        "core = sysmon\n"
        f"include ={include}\n"
        "disable_warnings = no-data-collected,module-not-measured,already-imported,no-sysmon\n"
    )


def body_lines(source: str, part: str = ".*") -> set[int]:
    """The lines in bodies of functions, of those that are, or are in, what has a name at the top of
    the module that `part` matches whole. What runs when a module is imported is not among them:
    every program would reach it."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        line
        for top in ast.parse(source).body
        if re.fullmatch(part, getattr(top, "name", ""))
        for node in ast.walk(top)
        if isinstance(node, functions)
        for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        if line > node.lineno
    }


def replacements(source: str) -> dict[str, set[int]]:
    """The lines of what each of Inductor's fusion patterns is replaced by, by the pattern's name.
    They are executed only to trace the replacement of a match that was checked and accepted."""
    return {
        node.name.replace("replacement", "pattern"): set(
            range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        )
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_sfdp_replacement_")
    }


class _BodyReporter(PythonFileReporter):
    """Counts statements of functions only."""

    def lines(self) -> set[int]:
        return super().lines() & body_lines(self.source(), PARTS.get(_named(self.filename), ".*"))


class _BodyCoverage(Coverage):
    """Reports with `_BodyReporter`. A plug-in of coverage.py could do that too, in more words."""

    def _get_file_reporter(self, morf: object) -> FileReporter:
        return _BodyReporter(str(morf), self)


def _named(path: str) -> str:
    """ "torch/…" of the path of one of torch's files."""
    return "torch/" + path.rpartition("/torch/")[2]


class Report:
    """What coverage.py says of `files` (paths by name), if `reached` are the lines that some
    program came to. It keeps a file in `folder`."""

    def __init__(
        self, files: Mapping[str, Path], reached: Mapping[str, set[int]], folder: Path
    ) -> None:
        self._files, kept = files, str(folder / "reached.coverage")
        data = CoverageData(kept)
        data.add_lines({str(path): reached.get(name, set()) for name, path in files.items()})
        data.touch_files([str(path) for path in files.values()])  # those without lines too
        data.write()
        self._coverage = _BodyCoverage(kept, config_file=False)
        self._coverage.load()

    def statements(self, name: str) -> tuple[list[int], list[int]]:
        """The first lines of a file's statements that count, and those of them that were reached,
        both in order."""
        _, statements, _, missing, _ = self._coverage.analysis2(str(self._files[name]))
        return statements, sorted(set(statements) - set(missing))

    def write_html(self, folder: Path) -> None:
        """Writes coverage.py's pages; the first is index.html."""
        self._coverage.html_report(directory=str(folder), title="Torch's attention code")

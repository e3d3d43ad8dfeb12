"""Which demands of its receiver's form the issue of each case of a corpus meets: a table.

    python benchmarks/issues.py corpus/cases --out issues.md

Everything in the table is run: the script of each issue, torch's CompilerBisector, the layers. Each
row is also a line of JSON in `--rows`, from where a run that was cut short goes on.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnfuzz.corpus.case import read_case
from attnfuzz.corpus.files import write_atomically
from attnfuzz.fuzz.issue.evidence import Evidence, NotShown, check_device, gather, place
from attnfuzz.fuzz.issue.text import form_of, issue_text
from attnfuzz.fuzz.report.bucket import Page
from attnfuzz.fuzz.report.escape import markdown
from attnfuzz.fuzz.report.findings import bucket_folders, case_folders
from attnfuzz.fuzz.report.pages import page_of_case

COLUMNS = (
    "case", "kind", "severity", "odd", "fails as it says", "default tolerances", "bisector",
    "eager", "dynamo", "aot_eager", "dynamic on/off", "text",
)  # fmt: skip


def pages(corpus: Path) -> Iterator[Page]:
    """A page for each case of `corpus`."""
    for folder in bucket_folders(corpus):
        for case in case_folders(folder):
            yield page_of_case(folder, read_case(case))


def row(page: Page, evidence: Evidence | None, ran: str = "", why: str = "") -> dict[str, str]:
    """What the table says of one case; where there is no evidence, whether its script `ran`, and
    `why`."""
    (case,) = page.cases
    told = {
        "case": f"{page.row.id}/{Path(case).name[:4]}",
        "kind": page.failure.kind.value,
        "severity": str(page.severity.score),
        "odd": str(page.severity.strangeness),
    }
    if evidence is None:
        return told | {"fails as it says": ran, "text": f"none: {why}"}
    compiled = form_of(page).compiler
    dynamic = "/".join(done(page, evidence, f"dynamic={on}") for on in (True, False))
    layers = {
        name: done(page, evidence, f"layer={name}") for name in ("eager", "dynamo", "aot_eager")
    }
    return told | {
        "fails as it says": f"{evidence.failures}/{evidence.runs}",
        "default tolerances": {True: "stands", False: "does not stand", None: "no number"}[
            evidence.stands
        ],
        "bisector": evidence.bisection or f"none: {evidence.no_bisection or 'eager'}",
        **({name: layers[name] for name in layers} if compiled else {}),
        "dynamic on/off": dynamic if compiled else "",
        "text": f"{len(issue_text(page, evidence).splitlines())} lines",
    }


def done(page: Page, evidence: Evidence, name: str) -> str:
    """What the variant of that `name` does. One that was not run is the program itself, which
    fails, or no program: a region that nothing compiles, say."""
    compiled = page.program.compile
    if compiled is None:
        return "–"
    layer = "dynamo" if compiled.backend == "eager" else compiled.backend
    itself = (f"layer={layer}", f"dynamic={compiled.dynamic}")
    return evidence.ablation.get(name, "fails" if name in itself else "–")


def shorter(answer: str) -> str:
    """The bisector's answer in a few words: "inductor: lowerings, 2 (flex_attention)"."""
    told = dict(re.findall(r"(\w+)=(?:'([^']*)'|(?:None|\d+))", answer))
    number = re.search(r"bisect_number=(\d+)", answer)
    if "backend" not in told:
        return answer
    part = f": {told['subsystem']}" if told.get("subsystem") else ""
    place = f", {number[1]}" if number else ""
    return f"{told['backend']}{part}{place}" + (f" ({told['debug_info']})" if place else "")


def table(rows: list[dict[str, str]]) -> str:
    """The rows as a table of Markdown."""
    lines = [" | ".join(COLUMNS), " | ".join("---" for _ in COLUMNS)]
    for row in rows:
        told = row | {"bisector": shorter(row["bisector"])} if "bisector" in row else row
        lines.append(" | ".join(markdown(told.get(name) or "–") for name in COLUMNS))
    return "".join(f"| {line} |\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=Path, default=Path("issues.jsonl"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--toolchain", default=sys.executable)
    given = parser.parse_args()
    known = given.rows.read_text().splitlines() if given.rows.exists() else []
    rows: list[dict[str, Any]] = [json.loads(line) for line in known]
    done = {one["case"] for one in rows}
    with place(given.toolchain) as here:
        for page in pages(given.corpus):
            if row(page, None)["case"] in done:
                continue
            ran = "not run"
            try:
                check_device(page)
                ran = "no"
                latest = row(page, gather(page, here, given.runs, lambda _: None))
            except NotShown as reason:
                latest = row(page, None, ran, str(reason))
            rows.append(latest)
            with given.rows.open("a") as file:
                file.write(json.dumps(latest) + "\n")
            print(json.dumps(latest), flush=True)
    write_atomically(given.out, table(sorted(rows, key=lambda one: one["case"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a form of a bucket's page asks for: a decision, a merge, a split, an undo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from attnfuzz.corpus.case import id_of
from attnfuzz.corpus.decisions.events import ON_ITS_OWN, Event, SplitFrom, Undo
from attnfuzz.corpus.decisions.history import history
from attnfuzz.corpus.decisions.merging import merge
from attnfuzz.corpus.decisions.splitting import split
from attnfuzz.corpus.decisions.status import in_force, status_of
from attnfuzz.corpus.decisions.undoing import undo
from attnfuzz.fuzz.dashboard.permission import Form, one
from attnfuzz.fuzz.deciding import decide_on, folder_in
from attnfuzz.fuzz.errors import UserError

KEPT = (*ON_ITS_OWN, SplitFrom, Undo)
"""What no button takes back: what nobody decided, and what is taken back elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """Where a bucket of a corpus stands, for its page: what is in force in words, the name of the
    last event ("" before the first), and the events that can be taken back."""

    folder: Path
    label: str
    merged_into: str | None
    looked_at: str
    undoable: list[Event]


def decided(corpus: Path, bucket: str) -> Decided:
    """That of the bucket. Raises UserError and CaseError."""
    folder = folder_in(corpus, bucket)
    events = history(folder)
    stands = status_of(events, date.today())
    return Decided(
        folder=folder,
        label=stands.label,
        merged_into=stands.merged_into,
        looked_at=events[-1].name if events else "",
        undoable=[one for one in in_force(events) if not isinstance(one.said, KEPT)],
    )


def _decide(folder: Path, form: Form) -> Path:
    kind = one(form, "verdict") or ""
    what = {"duplicate-of": one(form, "other"), "fixed-in": one(form, "version")}.get(kind)
    if kind == "reported" and one(form, "url") is None:
        raise UserError("reported: expected the address of the public thread")
    needed = {"duplicate-of": "the other bucket", "fixed-in": "the version of torch"}
    if kind in needed and what is None:
        raise UserError(f"{kind}: expected {needed[kind]}")
    decide_on(
        folder,
        kind,
        what,
        looked_at=_looked_at(form),
        url=one(form, "url") if kind == "reported" else None,
        why=one(form, "why"),
        until=one(form, "until"),
        by=one(form, "by"),
    )
    return folder


def _merge(folder: Path, form: Form) -> Path:
    other = one(form, "other")
    if other is None:
        raise UserError("merge: expected the bucket that this one becomes a part of")
    merge(folder_in(folder.parent, other), folder, one(form, "by"), _looked_at(form))
    return folder


def _split(folder: Path, form: Form) -> Path:
    cases = form.get("case", [])
    if not cases:
        raise UserError("split: expected at least one case")
    return split(folder, cases, one(form, "by"), _looked_at(form))


def _undo(folder: Path, form: Form) -> Path:
    undo(folder, one(form, "event"), one(form, "by"))
    return folder


def _looked_at(form: Form) -> str:
    return one(form, "looked_at") or ""


ACTIONS: dict[str, Callable[[Path, Form], Path]] = {
    "decide": _decide,
    "merge": _merge,
    "split": _split,
    "undo": _undo,
}
"""By their names in addresses: each gives the folder of the bucket to show next, and raises
UserError, CaseError, ProgramError and OSError."""


def act(corpus: Path, bucket: str, action: str, form: Form) -> str:
    """Does what the form asks for, and gives the id of the bucket to show next. Raises as above."""
    return id_of(ACTIONS[action](folder_in(corpus, bucket), form))

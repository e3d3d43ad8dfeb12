"""What a campaign knew of its corpora when it began: `known.yaml` in its directory, so that what is
new since last night can be told by the directory alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from attnfuzz.corpus.case import CaseError
from attnfuzz.corpus.decisions.events import BucketId
from attnfuzz.corpus.files import write_atomically
from attnfuzz.corpus.models import Model, Text, checked
from attnfuzz.generators.model.codec import dump_yaml, load_yaml_safely
from attnfuzz.generators.reading.files import ProgramError, is_there, read_inside

KNOWN_BEFORE = "known.yaml"

By = Annotated[dict[BucketId, Text], Field(max_length=100_000)]
"""Something said of buckets, by their ids."""


class KnownBefore(Model):
    """`torch` is the campaign's. Of the corpora's buckets: which would have come back if they fail,
    and why; which were last seen to pass, and with which torch; of which a decision has expired,
    and which."""

    torch: Text
    would_come_back: By = {}
    stopped: By = {}
    expired: By = {}


def read_known_before(directory: Path) -> KnownBefore | None:
    """That of the campaign in `directory`; None where it knew no corpus. Raises CaseError."""
    path = directory / KNOWN_BEFORE
    try:
        if not is_there(path):
            return None
        data = load_yaml_safely(read_inside(directory, KNOWN_BEFORE), str(path))
        return checked(KnownBefore, data, str(path))
    except ProgramError as error:
        raise CaseError(str(error)) from None


def write_known_before(directory: Path, known: KnownBefore) -> None:
    """Writes it down. Raises OSError."""
    write_atomically(directory / KNOWN_BEFORE, dump_yaml(known.model_dump(mode="json")))

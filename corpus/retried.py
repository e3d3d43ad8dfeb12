"""What a campaign has tried again of its corpora: `retried.yaml` in its directory. `adopt` notes it
in the histories of a corpus: campaigns themselves write nothing there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from attnfuzz.corpus.case import CaseError
from attnfuzz.corpus.decisions.events import BucketId, Outcome
from attnfuzz.corpus.files import write_atomically
from attnfuzz.corpus.models import Model, ProgramId, Text, checked
from attnfuzz.generators.model.codec import dump_yaml, load_yaml_safely
from attnfuzz.generators.reading.files import ProgramError, is_there, read_inside

RETRIED = "retried.yaml"


class RetriedBucket(Model):
    """What the cases of a bucket did, by their ids; whether it has `stopped` failing, or why it
    `came_back`, where that was not known. It is a part of the bucket `stays`, or is that itself."""

    stays: BucketId
    outcomes: Annotated[dict[ProgramId, Outcome], Field(min_length=1, max_length=1000)]
    stopped: bool = False
    came_back: Text | None = None

    @property
    def passes(self) -> bool:
        """Whether all of its cases passed."""
        return all(outcome == "fixed" for outcome in self.outcomes.values())


class Retried(Model):
    """By a bucket's id what it did with `torch`."""

    torch: Text
    buckets: Annotated[dict[BucketId, RetriedBucket], Field(max_length=100_000)] = {}


def read_retried(directory: Path) -> Retried | None:
    """That of the campaign in `directory`; None where it has tried nothing again. Raises
    CaseError."""
    path = directory / RETRIED
    try:
        if not is_there(path):
            return None
        data = load_yaml_safely(read_inside(directory, RETRIED), str(path))
        return checked(Retried, data, str(path))
    except ProgramError as error:
        raise CaseError(str(error)) from None


def write_retried(directory: Path, retried: Retried) -> None:
    """Writes it down. Raises OSError."""
    write_atomically(directory / RETRIED, dump_yaml(retried.model_dump(mode="json")))

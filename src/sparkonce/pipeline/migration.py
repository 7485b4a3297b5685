"""Goes on with a job of Spark's built-in Kafka connector: its checkpoint, looked at first, becomes the pipeline's own.

The source reads the offsets of the built-in one as they are. What must hold: the job has ended, its last micro-batch is
finished or at least not its first, and its checkpoint has one source, which is Kafka.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from sparkonce.errors import UsageError
from sparkonce.fetch.checkpoint import local_folder, read_checkpoint
from sparkonce.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What will be done."""

    source: Path
    target: Path
    query_id: str
    next_batch: int
    repeats: bool
    """Whether the next micro-batch was planned by the old job and not finished: its output may be there in part."""
    offsets: dict[TopicPartition, int]
    """Where reading goes on, or what the repeated micro-batch begins with."""


def plan_migration(checkpoint: str, target: str) -> Migration:
    """Looks at both; changes nothing."""
    old, new = local_folder(checkpoint), local_folder(target)
    if new.exists() and any(new.iterdir()):
        raise UsageError(f"the pipeline's checkpoint {new} is in use already: give the pipeline a new one")
    found = read_checkpoint(str(old))
    if found.query_id is None:
        raise UsageError(f"{old} is not a checkpoint of a streaming query: it has no file 'metadata'")
    if found.committed is None:
        raise UsageError(
            f"{old} has no finished micro-batch. Let the job finish its first one with the built-in connector: where "
            f"that began is in no log"
        )
    progress = found.committed.progress()
    if len(found.committed.sources) != 1 or progress is None or not progress.end:
        raise UsageError(f"{old} is not of a query with one source, a Kafka one; a pipeline has exactly that")
    return Migration(
        source=old,
        target=new,
        query_id=found.query_id,
        next_batch=found.committed.batch_id + 1,
        repeats=found.unfinished is not None,
        offsets=dict(progress.end),
    )


def migrate(plan: Migration) -> None:
    """Copies the checkpoint, whole or not at all; the old one stays as it is."""
    draft = plan.target.with_name(f".{plan.target.name}.{uuid.uuid4().hex}")
    plan.target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(plan.source, draft)
        if plan.target.exists():
            plan.target.rmdir()
        draft.rename(plan.target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)

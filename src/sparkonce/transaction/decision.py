"""Whether a micro-batch is committed already: one pure decision over the marker and what Spark's log says.

The marker was read after the id was claimed, so no transaction is open and what it says is final. That it is missing
is final too, unless Kafka may have forgotten it: a group without members loses its offsets after a while (seven days by
default). A batch that was planned more recently than that cannot have lost its marker.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkonce.errors import MissingMarkerError, UsageError
from sparkonce.transaction.marker import Marker


@dataclass(frozen=True, slots=True)
class Candidate:
    """The micro-batch in question, from Spark's offset log."""

    query_id: str
    batch_id: int
    offsets_digest: str
    age_ms: int
    """How long ago it was planned."""


def is_committed(
    marker: Marker | None, batch: Candidate, *, transactional_id: str, marker_life_ms: int, on_missing_marker: str
) -> bool:
    """Whether to skip the batch. Raises where going on could lose or double something."""
    if marker is None:
        return _without_marker(batch, transactional_id, marker_life_ms, on_missing_marker)
    if marker.owner.query_id != batch.query_id:
        return _other_life(marker, batch, transactional_id)
    if marker.batch_id < batch.batch_id:
        return False
    if marker.batch_id == batch.batch_id and marker.offsets_digest == batch.offsets_digest:
        return True
    raise UsageError(
        f"Kafka says that batch {marker.batch_id} of query {batch.query_id} is committed under transactional id "
        f"{transactional_id}, but the checkpoint is about to run batch {batch.batch_id}"
        f"{' with other offsets' if marker.batch_id == batch.batch_id else ''}: it is older than the output, a backup "
        f"perhaps. Restore the newest checkpoint, or start anew with another transactional_id"
    )


def _other_life(marker: Marker, batch: Candidate, transactional_id: str) -> bool:
    """A new checkpoint starts a new life of the id; one that has gone on under another id has not."""
    if batch.batch_id == 0:
        return False
    raise UsageError(
        f"transactional id {transactional_id} was last used by {marker.owner} for its batch {marker.batch_id}, but "
        f"this is batch {batch.batch_id} of query {batch.query_id}. Two queries share the id, or the checkpoint was "
        f"copied: give this query a transactional_id of its own"
    )


def _without_marker(batch: Candidate, transactional_id: str, marker_life_ms: int, on_missing_marker: str) -> bool:
    if batch.age_ms < marker_life_ms:
        return False
    if on_missing_marker == "stop":
        raise MissingMarkerError(
            f"batch {batch.batch_id} of query {batch.query_id} was planned {batch.age_ms // 3_600_000} hours ago, and "
            f"Kafka keeps the marker of transactional id {transactional_id} for {marker_life_ms // 3_600_000}: whether "
            f"the batch is committed cannot be known any more. Look at the output, then say it with "
            f"`sparkonce recover`, or start once with on_missing_marker='committed' or 'not-committed'"
        )
    return on_missing_marker == "committed"

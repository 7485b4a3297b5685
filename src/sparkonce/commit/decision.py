"""The decision: which run of which micro-batch was the last to be committed. One small durable value per query.

Where it is kept is behind `DecisionStore`: Kafka's own transaction, or files beside Spark's checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from sparkonce.commit.branch import Branch
from sparkonce.errors import UsageError


@dataclass(frozen=True, slots=True)
class Decision:
    """Every branch of this run is to be committed; no other prepared branch of the query is (argued in `runner`)."""

    query: str
    """Digest of the query's id."""
    batch_id: int
    epoch: int
    offsets_digest: str = ""
    """Of the batch's end offsets, so that a batch with the same number but other content is noticed."""

    def chose(self, branch: Branch) -> bool:
        """Whether the branch belongs to the decided run."""
        return (branch.query, branch.batch_id, branch.epoch) == (self.query, self.batch_id, self.epoch)


class DecisionStore(ABC):
    """Keeps the last decision of one query, and makes sure that one driver at a time can change it."""

    @abstractmethod
    def claim(self) -> Decision | None:
        """Takes over from whoever ran the query before: from now on nobody else can record. Gives the last decision,
        which is final: no other can still be on its way.
        """

    @abstractmethod
    def require_claim(self) -> None:
        """Raises FencedError if another driver has claimed since."""

    @abstractmethod
    def new_epoch(self) -> int:
        """A number for one run of a micro-batch that no other run of any driver has, had or will have."""

    @abstractmethod
    def record(self, decision: Decision) -> None:
        """Durable when it returns. Otherwise AbortableError if it is not recorded and never will be, FencedError if
        another driver has claimed (not recorded either), InDoubtError if nobody knows.
        """

    def abandon(self) -> None:  # noqa: B027  Most stores have nothing to end.
        """The run under the newest epoch ends without a decision."""


def is_decided(last: Decision | None, batch_id: int, offsets_digest: str = "") -> bool:
    """Whether a micro-batch is decided already. Raises where running or skipping it would lose or double something."""
    if last is None or last.batch_id < batch_id:
        return False
    if last.batch_id == batch_id and last.offsets_digest == offsets_digest:
        return True
    raise UsageError(
        f"batch {last.batch_id} is decided, but the checkpoint is about to run batch {batch_id}"
        f"{' with other offsets' if last.batch_id == batch_id else ''}: it is older than the output, a backup perhaps. "
        f"Restore the newest checkpoint, or start anew with another one"
    )

"""Kafka's transaction as the decision of a two-phase commit: the last resource, committed in the moment of deciding.

The marker of the micro-batch is inside the transaction, so "Kafka has the batch" and "the batch is decided" are one
fact. Stores are committed after it, so none of them ever shows a micro-batch that Kafka does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparkonce.commit import Decision, DecisionStore, query_digest
from sparkonce.errors import AbortableError
from sparkonce.model import NO_PRODUCER, ProducerIdentity, TopicPartition
from sparkonce.transaction import KafkaTransaction, Marker
from sparkonce.wire import GroupOffset

_EPOCH_BITS = 15

Judge = Callable[[Marker | None], Decision | None]
"""From the marker that was found to the last decision of this query; raises where nobody can tell."""


def run_epoch(producer: ProducerIdentity) -> int:
    """The epoch of a run: no other run has the same producer id and epoch."""
    return producer.producer_id << _EPOCH_BITS | producer.producer_epoch


def decision_of(marker: Marker) -> Decision:
    """What a marker decides."""
    query = query_digest(marker.owner.query_id)
    return Decision(query, marker.batch_id, run_epoch(marker.producer), marker.offsets_digest)


class KafkaDecisions(DecisionStore):
    """The decisions of one query under one transactional id."""

    def __init__(self, transaction: KafkaTransaction, timeout_ms: int, judge: Judge, *, has_stores: bool) -> None:
        self.timeout_ms = timeout_ms
        """How long the next transaction may be open."""
        self.producer = NO_PRODUCER
        """Under which the tasks of the newest run send."""
        self.source_offsets: Mapping[str, Mapping[TopicPartition, GroupOffset]] = {}
        """By group; they become part of the next decision."""
        self._transaction = transaction
        self._judge = judge
        self._has_stores = has_stores

    def claim(self) -> Decision | None:
        """As `DecisionStore` says."""
        return self._judge(self._transaction.claim(self.timeout_ms))

    def require_claim(self) -> None:
        """As `DecisionStore` says."""
        self._transaction.require_id()

    def new_epoch(self) -> int:
        """As `DecisionStore` says: opens the transaction."""
        self.producer = self._transaction.begin(self.timeout_ms)
        return run_epoch(self.producer)

    def record(self, decision: Decision) -> None:
        """As `DecisionStore` says: commits the transaction, with the source's offsets and the marker in it."""
        owner = self._transaction.settings.owner
        marker = Marker(decision.batch_id, owner, self.producer, decision.offsets_digest)
        self._transaction.pre_commit(marker, self.source_offsets)
        if not self._transaction.commit():
            raise AbortableError("the broker aborted the transaction before it was committed")
        if self._has_stores:
            self._transaction.wait_for_readers()

    def abandon(self) -> None:
        """As `DecisionStore` says: nothing of the open transaction will ever be visible. FencedError if the id is lost;
        if only the transaction was, because it expired, the id is ours again.
        """
        self._transaction.abort()

"""Sending encoded batches to the partitions that one task owns: in order, several under way, each exactly once.

Sequence numbers start at 0 for each partition (the producer epoch is fresh) and are contiguous. The broker remembers
the last five batches of a producer per partition and recognises a repetition among them, so a batch is sent only while
the oldest one without an answer stays among the last five. When one of them must be sent again, those behind it are
refused as out of order: they are waited for and then sent again too, the same bytes in the same order.

Until a partition's first batch is in, nothing else is sent there: a leader that has never seen a producer takes any
sequence number as its first, so a second batch could get in before the first.
"""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass, field

from sparkonce.deadline import Deadline, backoff_ms
from sparkonce.errors import RetriableError, SparkonceError, UsageError
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.records import record_count, seal
from sparkonce.wire import (
    Appended,
    Client,
    Handle,
    ProduceSettings,
    TransactionProtocol,
    send_produce,
)

IN_FLIGHT_MAX = 5
_SEQUENCES = 2**31
_OUT_OF_ORDER = 45
_DUPLICATE = 46


@dataclass(frozen=True, slots=True)
class SendSettings:
    """Under whose name and how a task sends. It crosses from the driver to the tasks."""

    producer: ProducerIdentity
    transactional_id: str | None
    protocol: TransactionProtocol
    acks: int = -1
    requests_in_flight: int = IN_FLIGHT_MAX
    deadline_ms: int = 120_000
    """How long one batch is waited for and sent again. What computes between two batches does not count."""

    def __post_init__(self) -> None:
        if not 1 <= self.requests_in_flight <= IN_FLIGHT_MAX:
            raise UsageError(f"requests in flight must be 1 to {IN_FLIGHT_MAX}, not {self.requests_in_flight}")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was acknowledged for one topic partition."""

    partition: TopicPartition
    record_count: int
    batch_count: int
    sent_bytes: int


@dataclass(slots=True)
class _Sent:
    """A sealed batch that is not acknowledged yet."""

    number: int
    data: bytearray
    handle: Handle[Appended] | None = None
    failure: SparkonceError | None = None


@dataclass(slots=True)
class _Lane:
    """One topic partition: its next sequence number, and what is not acknowledged, in order."""

    partition: TopicPartition
    sequence: int = 0
    records: int = 0
    batches: int = 0
    sent_bytes: int = 0
    unacknowledged: deque[_Sent] = field(default_factory=deque)

    def has_room(self, in_flight_max: int) -> bool:
        """Whether the leader would still recognise the oldest batch after one more. Batches behind it count even when
        they are acknowledged: the leader remembers them in its place.
        """
        leader_knows_producer = self.batches > len(self.unacknowledged)
        return not self.unacknowledged or (
            leader_knows_producer and self.batches - self.unacknowledged[0].number < in_flight_max
        )


class Sender:
    """All lanes of one task. Not for two threads."""

    def __init__(self, client: Client, settings: SendSettings) -> None:
        self._client = client
        self._settings = settings
        self._produce = ProduceSettings(
            acks=settings.acks,
            transactional_id=settings.transactional_id,
            protocol=settings.protocol,
            idempotent=True,
        )
        self._lanes: dict[TopicPartition, _Lane] = {}

    def begin(self, partition: TopicPartition, sequence: int) -> None:
        """The partition's first batch continues what another task has sent there under the same producer."""
        self._lanes[partition] = _Lane(partition, sequence)

    def send(self, partition: TopicPartition, encoded: bytes | memoryview) -> None:
        """Seals a batch and sends it; returns while it is under way, if there is room."""
        lane = self._lanes.setdefault(partition, _Lane(partition))
        while not lane.has_room(self._settings.requests_in_flight):
            self._settle_oldest(lane)
        count = record_count(encoded)
        transactional = self._settings.transactional_id is not None
        sealed = seal(encoded, self._settings.producer, lane.sequence, transactional=transactional)
        batch = _Sent(lane.batches, sealed)
        lane.sequence = next_sequence(lane.sequence, count)
        lane.records += count
        lane.batches += 1
        lane.sent_bytes += len(batch.data)
        lane.unacknowledged.append(batch)
        self._dispatch(lane, batch, self._deadline())

    def finish(self) -> list[Receipt]:
        """Waits until everything is acknowledged."""
        for partition in self._lanes:
            self.settle(partition)
        return [Receipt(lane.partition, lane.records, lane.batches, lane.sent_bytes) for lane in self._lanes.values()]

    def settle(self, partition: TopicPartition) -> None:
        """Waits until everything is acknowledged there."""
        lane = self._lanes[partition]
        while lane.unacknowledged:
            self._settle_oldest(lane)

    def _deadline(self) -> Deadline:
        return Deadline.after_ms(self._settings.deadline_ms)

    def _dispatch(self, lane: _Lane, batch: _Sent, until: Deadline) -> None:
        batch.handle, batch.failure = None, None
        try:
            address = self._client.leader(lane.partition, until)
            batch.handle = send_produce(self._client, address, {lane.partition: batch.data}, self._produce, until)
        except RetriableError as error:
            self._client.note_leader_error(lane.partition, error)
            batch.failure = error

    def _settle_oldest(self, lane: _Lane) -> None:
        """Waits until the lane's oldest batch is in; if it must be sent again, so are those behind it."""
        until, began, tries = self._deadline(), time.monotonic(), 0
        while (failure := self._outcome(lane, lane.unacknowledged[0], until)) is not None:
            if not isinstance(failure, RetriableError):
                raise failure
            tries += 1
            options = self._client.options
            jitter = random.random()  # noqa: S311  Tasks that failed together must not come back together.
            pause_ms = backoff_ms(tries - 1, options.retry_backoff_ms, options.retry_backoff_max_ms, jitter)
            if until.remaining_ms <= pause_ms:
                text = f"{failure} (gave up after {tries} attempts in {time.monotonic() - began:.1f} s)"
                raise RetriableError(text, fault=failure.fault) from failure
            self._drop_acknowledged(lane, until)
            self._client.connections.pause(pause_ms / 1000)
            for batch in lane.unacknowledged:
                self._dispatch(lane, batch, until)
        lane.unacknowledged.popleft()

    def _drop_acknowledged(self, lane: _Lane, until: Deadline) -> None:
        """Waits for all of a lane whose oldest batch failed. Those behind it may be refused as out of order; they are
        in if the failed batch is in and only its answer was lost.
        """
        outcomes = [(batch, self._outcome(lane, batch, until)) for batch in lane.unacknowledged]
        for _, failure in outcomes:
            if (
                failure is not None
                and not isinstance(failure, RetriableError)
                and not _has_code(failure, _OUT_OF_ORDER)
            ):
                raise failure
        lane.unacknowledged = deque(batch for batch, failure in outcomes if failure is not None)

    def _outcome(self, lane: _Lane, batch: _Sent, until: Deadline) -> SparkonceError | None:
        """None once the batch is in."""
        if batch.handle is None:
            return batch.failure
        outcome = batch.handle.result(until)[lane.partition]
        return None if isinstance(outcome, Appended) or _has_code(outcome, _DUPLICATE) else outcome


def next_sequence(sequence: int, record_count: int) -> int:
    """The base sequence of the next batch. After 2^31 - 1 comes 0, also within a batch, as in Kafka's
    `DefaultRecordBatch.incrementSequence`.
    """
    return (sequence + record_count) % _SEQUENCES


def _has_code(error: SparkonceError, code: int) -> bool:
    return error.fault is not None and error.fault.code == code

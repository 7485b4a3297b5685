"""Frozen values that every layer shares. They hold no live resource and may cross processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """A producer id with its epoch: what Kafka checks on every write of a producer."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = ProducerIdentity(-1, -1)
"""The identity of a producer that is neither idempotent nor transactional."""

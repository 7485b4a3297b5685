"""Where queries of the contract suite keep their decisions: in files, or in Kafka, which then gets all rows too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from sparkonce.commit import Decision, DecisionStore, FileDecisions, LocalFolder
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.participants.kafka import KafkaDecisions, decision_of
from sparkonce.send import Sender, SendSettings
from sparkonce.transaction import KafkaTransaction, Marker, Owner, TransactionSettings
from sparkonce.wire import Client
from tests.broker.wire_samples import record_batch

TIMEOUT_MS = 30_000
Rows = tuple[tuple[pa.RecordBatch, ...], ...]
"""By micro-batch and Spark partition: the source."""


class Decided(Protocol):
    """It is pickled for the processes of drivers."""

    def decisions(self, query_id: str, rows: Rows) -> DecisionStore: ...


@dataclass(frozen=True)
class InFiles:
    folder: Path

    def decisions(self, query_id: str, rows: Rows) -> DecisionStore:
        return FileDecisions(LocalFolder(self.folder / f"decisions-{query_id}"), query_id)


@dataclass(frozen=True)
class InKafka:
    bootstrap_servers: str
    topic: str

    def decisions(self, query_id: str, rows: Rows) -> DecisionStore:
        return SendingDecisions(self, query_id, rows)


def value_of(key: int, batch: int) -> bytes:
    """A row as a record."""
    return b"%d %d" % (key, batch)


class SendingDecisions(KafkaDecisions):
    """Sends the rows of a micro-batch just before it is decided."""

    def __init__(self, place: InKafka, query_id: str, rows: Rows) -> None:
        self._client = Client(ConnectionOptions(bootstrap_servers=place.bootstrap_servers))
        self._partition = TopicPartition(place.topic, 0)
        self._id, self._rows = query_id, rows
        settings = TransactionSettings(query_id, self._partition, Owner.here(query_id))
        self._kafka = KafkaTransaction(self._client, settings)
        super().__init__(self._kafka, TIMEOUT_MS, _judge, has_stores=True)

    def close(self) -> None:
        self._client.close()

    def record(self, decision: Decision) -> None:
        settings = SendSettings(self.producer, self._id, self._kafka.protocol)
        self._kafka.add_partitions([self._partition])
        sender = Sender(self._client, settings)
        for rows in self._rows[decision.batch_id]:
            sender.send(self._partition, record_batch([value_of(*row.values()) for row in rows.to_pylist()]))
        sender.finish()
        super().record(decision)


def _judge(marker: Marker | None) -> Decision | None:
    return decision_of(marker) if marker else None

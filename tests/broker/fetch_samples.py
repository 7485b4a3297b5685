"""Topics filled and read by librdkafka, so that the source is judged by a client that is not ours."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from demo.reader import read_topic

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from sparkonce.fetch import OffsetRange, ReadSettings, read_range
from sparkonce.model import TopicPartition
from sparkonce.wire import Client, Isolation, OffsetAt, list_offsets

WAIT_SECONDS = 60
BASE_MS = 1_700_000_000_000


@dataclass(frozen=True, order=True)
class Row:
    """A record with everything that a reader can see of it."""

    partition: int
    offset: int
    key: bytes | None = field(compare=False)
    value: bytes | None = field(compare=False)
    timestamp_ms: int = field(compare=False)
    timestamp_type: int = field(compare=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(compare=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and self.everything == other.everything

    def __hash__(self) -> int:
        return hash(self.everything)

    @property
    def everything(self) -> tuple[Any, ...]:
        return (
            self.partition,
            self.offset,
            self.key,
            self.value,
            self.timestamp_ms,
            self.timestamp_type,
            self.headers,
        )


def producer_of(broker: DevBroker, **config: Any) -> Any:
    """A producer that keeps the order of its records; without idempotence a retry may change it."""
    return Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, "enable.idempotence": True, **config}
    )


def send(
    producer: Any, topic: str, values: Sequence[bytes | None], partition: int = 0, first_ms: int = BASE_MS
) -> None:
    """One record a value, with a key and, for every third, headers; the timestamps count up from `first_ms`."""
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            None if number % 5 == 4 else f"k{number % 7}".encode(),
            partition=partition,
            timestamp=first_ms + number,
            headers=[("a", b"1"), ("b", None)] if number % 3 == 0 else None,
        )
        producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0


def send_transactions(
    broker: DevBroker, topic: str, commits: Sequence[bool], partitions: int = 1, each: int = 20
) -> None:
    """Transactions of two producers, one inside the other, with the outcomes given, and plain records between them."""
    outer = producer_of(broker, **{"transactional.id": f"outer-{uuid.uuid4()}"})
    inner = producer_of(broker, **{"transactional.id": f"inner-{uuid.uuid4()}"})
    plain = producer_of(broker)
    outer.init_transactions(WAIT_SECONDS)
    inner.init_transactions(WAIT_SECONDS)
    for number, commit in enumerate(commits):
        outer.begin_transaction()
        for partition in range(partitions):
            send(outer, topic, [f"outer {number} {commit} {i}".encode() for i in range(each)], partition)
        inner.begin_transaction()
        send(inner, topic, [f"inner {number} {not commit} {i}".encode() for i in range(each)])
        end(inner, commit=not commit)
        send(plain, topic, [f"plain {number}".encode()])
        send(outer, topic, [f"outer again {number} {commit}".encode()])
        end(outer, commit=commit)


def end(producer: Any, *, commit: bool) -> None:
    if commit:
        producer.commit_transaction(WAIT_SECONDS)
    else:
        producer.abort_transaction(WAIT_SECONDS)


def rows_by_librdkafka(
    broker: DevBroker, topic: str, partitions: int = 1, isolation: str = "read_committed"
) -> list[Row]:
    """Everything that librdkafka sees in a topic."""
    messages = read_topic(broker.bootstrap_servers, topic, partitions, isolation=isolation)
    return sorted(map(_row_of_message, messages))


def _row_of_message(message: Any) -> Row:
    kind, timestamp_ms = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    # librdkafka counts: 1 create time, 2 append time; Kafka and Spark: 0 and 1.
    return Row(message.partition(), message.offset(), message.key(), message.value(), timestamp_ms, kind - 1, headers)


def rows_of_arrow(arrow_batch: pa.RecordBatch, partition: int) -> list[Row]:
    """What `read_range` gave, as rows."""
    timestamps = arrow_batch["timestamp"].cast(pa.int64()).to_pylist()
    return [
        Row(
            partition,
            row["offset"],
            row["key"],
            row["value"],
            timestamp_ms,
            row["timestamp_type"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for timestamp_ms, row in zip(timestamps, arrow_batch.drop_columns(["timestamp"]).to_pylist(), strict=True)
    ]


def log_end(client: Client, partition: TopicPartition, isolation: Isolation = Isolation.READ_COMMITTED) -> int:
    return list_offsets(client, {partition: OffsetAt.LATEST}, isolation)[partition].offset


def wait_for_markers(client: Client, partition: TopicPartition) -> None:
    """A transaction's end is answered before its markers are written."""
    until = Deadline.after(WAIT_SECONDS)
    assert wait_until(
        lambda: log_end(client, partition) == log_end(client, partition, Isolation.READ_UNCOMMITTED), until
    )


def rows_by_us(client: Client, wanted: OffsetRange, settings: ReadSettings | None = None) -> list[Row]:
    """A range, read by the code under test."""
    partition = wanted.topic_partition.partition
    batches = read_range(client, wanted, settings or ReadSettings())
    return [row for arrow_batch in batches for row in rows_of_arrow(arrow_batch, partition)]


def delete_before(broker: DevBroker, topic: str, offset: int) -> None:
    """As retention does it: the records before the offset are gone."""
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    partition = ConfluentPartition(topic, 0, offset)
    admin.delete_records([partition])[partition].result(WAIT_SECONDS)

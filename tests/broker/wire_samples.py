"""Record batches made and read by other people's code, so that our own is not its own judge."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from demo.reader import read_topic
from kafka.record.memory_records import MemoryRecordsBuilder

from sparkonce.devbroker import DevBroker
from sparkonce.model import NO_PRODUCER, ProducerIdentity, TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client, TransactionProtocol, add_offsets, add_partitions


def record_batch(
    values: Sequence[bytes],
    identity: ProducerIdentity = NO_PRODUCER,
    sequence: int = -1,
    *,
    transactional: bool = False,
    compression: int = 0,
) -> bytes:
    """One record batch, built by kafka-python."""
    builder = MemoryRecordsBuilder(
        magic=2,
        compression_type=compression,
        batch_size=1 << 30,
        transactional=transactional,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=sequence,
    )
    for value in values:
        builder.append(timestamp=int(time.time() * 1000), key=None, value=value)
    builder.close()
    return bytes(builder.buffer())


def values_in(
    broker: DevBroker, topic: str, partitions: int, *, isolation: str = "read_committed", settled: bool = True
) -> list[bytes]:
    """All values of a topic, read by librdkafka, in order of partition and offset."""
    messages = read_topic(broker.bootstrap_servers, topic, partitions, isolation=isolation, settled=settled)
    found = [(message.partition(), message.offset(), message.value()) for message in messages]
    return [value for _, _, value in sorted(found)]


@contextmanager
def client_of(broker: DevBroker, **more: Any) -> Iterator[Client]:
    """A client of a dev broker."""
    with Client(ConnectionOptions(bootstrap_servers=broker.bootstrap_servers, **more)) as client:
        yield client


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    """The topic partitions of a topic."""
    return [TopicPartition(topic, index) for index in range(count)]


def add_under_v1(
    client: Client,
    transactional_id: str,
    identity: ProducerIdentity,
    partitions: Sequence[TopicPartition],
    group: str | None = None,
) -> None:
    """What the old protocol asks for before records and offsets; nothing under the new one."""
    if client.transaction_protocol() is TransactionProtocol.V2:
        return
    if partitions:
        add_partitions(client, transactional_id, identity, partitions)
    if group is not None:
        add_offsets(client, transactional_id, identity, group)

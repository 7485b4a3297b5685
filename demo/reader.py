"""A topic as librdkafka reads it, which shares no code with us."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from sparkonce.deadline import Deadline, wait_until

WAIT_SECONDS = 60
_MESSAGES = 10_000
_POLL_SECONDS = 0.05


def read_topic(
    bootstrap_servers: str, topic: str, partitions: int, *, isolation: str = "read_committed", settled: bool = True
) -> Iterator[Any]:
    """Every message up to the end, those of a partition in their order. A transaction's end is answered before its
    markers are written, and until then a partition ends where the transaction began: unless `settled` is false, this
    waits until no transaction is open.
    """
    servers: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    places = [TopicPartition(topic, index, 0) for index in range(partitions)]
    if settled and isolation == "read_committed":
        admin = AdminClient(servers)
        if not wait_until(lambda: _has_no_open_transaction(admin, places), Deadline.after(WAIT_SECONDS)):
            raise TimeoutError(f"a transaction is still open in {topic} after {WAIT_SECONDS} seconds")
    consumer: Any = Consumer(
        {
            **servers,
            "group.id": f"reader-{uuid.uuid4()}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # if the first ones are deleted
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # An end is told by a fetch that finds nothing.
        }
    )
    try:
        consumer.assign(places)
        yield from _until_the_end(consumer, topic, partitions)
    finally:
        consumer.close()


def _has_no_open_transaction(admin: Any, places: list[TopicPartition]) -> bool:
    """Whether readers of committed records get as far as all others."""
    wanted = dict.fromkeys(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    both = [
        admin.list_offsets(wanted, isolation_level=level)
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    ]
    try:
        committed, everything = ([found[place].result(WAIT_SECONDS).offset for place in places] for found in both)
    except KafkaException as error:
        if error.args[0].retriable():  # A leader has moved.
            return False
        raise
    return committed == everything


def _until_the_end(consumer: Any, topic: str, partitions: int) -> Iterator[Any]:
    ended: set[int] = set()
    silent = Deadline.after(WAIT_SECONDS)
    while len(ended) < partitions:
        if silent.expired:
            raise TimeoutError(f"librdkafka found nothing new in {topic} for {WAIT_SECONDS} seconds, and no end")
        for message in consumer.consume(_MESSAGES, _POLL_SECONDS):
            silent = Deadline.after(WAIT_SECONDS)
            if message.error() is None:
                yield message
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(message.error())

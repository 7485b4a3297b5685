"""A topic as librdkafka reads it, which shares no code with us."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

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
    places = [TopicPartition(topic, index, 0) for index in range(partitions)]
    with closing(_consumer(bootstrap_servers, isolation)) as consumer:
        if settled and isolation == "read_committed":
            with closing(_consumer(bootstrap_servers, "read_uncommitted")) as of_all:
                if not wait_until(
                    lambda: _ends(consumer, places) == _ends(of_all, places), Deadline.after(WAIT_SECONDS)
                ):
                    raise TimeoutError(f"a transaction is still open in {topic} after {WAIT_SECONDS} seconds")
        consumer.assign(places)
        yield from _until_the_end(consumer, topic, partitions)


def _consumer(bootstrap_servers: str, isolation: str) -> Any:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"reader-{uuid.uuid4()}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # if the first ones are deleted
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # An end is told by a fetch that finds nothing.
            "log_level": 0,
        }
    )


def _ends(consumer: Any, places: list[TopicPartition]) -> list[int]:
    """Where the partitions end for this consumer."""
    return [consumer.get_watermark_offsets(place, WAIT_SECONDS)[1] for place in places]


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

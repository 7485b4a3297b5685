"""Leaders that die and logs that are compacted while or before a range is read: no gap, no double."""

from __future__ import annotations

from typing import Any

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from sparkonce.fetch import OffsetRange, ReadSettings, read_range
from sparkonce.model import TopicPartition
from tests.broker.fetch_samples import (
    end as end_transaction,
)
from tests.broker.fetch_samples import (
    log_end,
    producer_of,
    rows_by_librdkafka,
    rows_by_us,
    rows_of_arrow,
    send,
)
from tests.broker.wire_samples import client_of
from tests.conftest import TopicFactory

COMPACTION_SECONDS = 120


def test_a_leader_killed_while_reading(cluster3: DevBroker, topic: TopicFactory) -> None:
    partition = TopicPartition(topic(cluster3), 0)
    producer = producer_of(cluster3, **{"batch.num.messages": 100})
    send(producer, partition.topic, [b"%d" % n + b"." * 500 for n in range(8_000)])
    expected = rows_by_librdkafka(cluster3, partition.topic)
    settings = ReadSettings(fetch_bytes=100_000, ahead_bytes=200_000, deadline_ms=90_000)
    with client_of(cluster3) as client:
        rows = []
        killed = None
        try:
            for arrow_batch in read_range(client, OffsetRange(partition, 0, len(expected)), settings):
                rows += rows_of_arrow(arrow_batch, 0)
                if killed is None and len(rows) > 2_000:
                    killed = client.leader(partition).broker_id
                    cluster3.kill(killed)
        finally:
            if killed is not None:
                cluster3.start(killed)
    assert killed is not None
    assert rows == expected


def write_keyed(producer: Any, topic: str, count: int) -> None:
    for number in range(count):
        producer.produce(topic, None if number % 31 == 0 else b"%d" % number, b"k%d" % (number % 97))
    assert producer.flush(COMPACTION_SECONDS) == 0


def test_a_compacted_topic(broker: DevBroker, topic: TopicFactory) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "100",
        "max.compaction.lag.ms": "200",
    }
    name = topic(broker, config=config)
    producer = producer_of(broker, **{"batch.num.messages": 20})
    # The same few keys again and again, tombstones, and an aborted transaction between committed ones.
    write_keyed(producer, name, 3_000)
    transactional = producer_of(broker, **{"transactional.id": name, "batch.num.messages": 20})
    transactional.init_transactions(COMPACTION_SECONDS)
    for commit in (True, False, True):
        transactional.begin_transaction()
        write_keyed(transactional, name, 100)
        end_transaction(transactional, commit=commit)

    def compacted() -> bool:
        # Segments are only rolled when something is written.
        producer.produce(name, b"end", b"the end")
        producer.flush(30)
        return len(rows_by_librdkafka(broker, name)) < 1_000

    assert wait_until(compacted, Deadline.after(COMPACTION_SECONDS))
    with client_of(broker) as client:
        partition = TopicPartition(name, 0)
        end = log_end(client, partition)
        rows = rows_by_us(client, OffsetRange(partition, 0, end))
        again = rows_by_librdkafka(broker, name)
        # The cleaner may run between two readers, so that each reads what the other does, or later leftovers of it.
        assert rows == again or set(again) <= set(rows)
        assert rows[-1].offset - rows[0].offset > len(rows)
        # Any range can be read, also one of which nothing is left.
        for start in range(0, end, 500):
            wanted = OffsetRange(partition, start, min(start + 500, end))
            assert all(start <= row.offset < wanted.end for row in rows_by_us(client, wanted))

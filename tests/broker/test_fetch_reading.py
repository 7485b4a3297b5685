"""Ranges of real topics, row for row as librdkafka sees them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.errors import UsageError
from sparkonce.fetch import OffsetRange, ReadSettings
from sparkonce.model import TopicPartition
from sparkonce.wire import Client, Isolation
from tests.broker.fetch_samples import (
    delete_before,
    log_end,
    producer_of,
    rows_by_librdkafka,
    rows_by_us,
    send,
    send_transactions,
    wait_for_markers,
)
from tests.broker.wire_samples import client_of
from tests.conftest import TopicFactory

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Client]:
    with client_of(broker) as connected:
        yield connected


def whole(client: Client, topic: str, isolation: Isolation = Isolation.READ_COMMITTED) -> OffsetRange:
    partition = TopicPartition(topic, 0)
    return OffsetRange(partition, 0, log_end(client, partition, isolation))


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_with_headers_and_nulls(codec: str, broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker)
    source = random.Random(7)
    values = [None if n % 11 == 0 else source.randbytes(n % 90) + b"text " * 10 for n in range(5_000)]
    send(producer_of(broker, **{"compression.type": codec, "batch.num.messages": 300}), name, values)
    expected = rows_by_librdkafka(broker, name)
    assert len(expected) == len(values)
    assert rows_by_us(client, whole(client, name)) == expected
    # Many small answers, each queued up ahead of decoding.
    assert rows_by_us(client, whole(client, name), ReadSettings(fetch_bytes=1_000, ahead_bytes=10_000)) == expected


def test_any_range_of_batches_that_straddle_it(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker)
    send(producer_of(broker, **{"batch.num.messages": 50}), name, [b"%d" % n for n in range(400)])
    expected = rows_by_librdkafka(broker, name)
    for start, end in ((0, 400), (0, 1), (49, 51), (50, 100), (75, 80), (399, 400), (123, 377), (10, 10)):
        assert rows_by_us(client, OffsetRange(TopicPartition(name, 0), start, end)) == expected[start:end]


@pytest.mark.parametrize("which", ["broker", "broker_tv1"])
def test_transactions_with_aborts(which: str, request: pytest.FixtureRequest, topic: TopicFactory) -> None:
    broker: DevBroker = request.getfixturevalue(which)
    name = topic(broker)
    send_transactions(broker, name, [True, False, False, True, False])
    with client_of(broker) as client:
        wait_for_markers(client, TopicPartition(name, 0))
        expected = rows_by_librdkafka(broker, name)
        assert not any(row.value and b"False" in row.value for row in expected)
        assert rows_by_us(client, whole(client, name)) == expected
        # Each start and end, also in the middle of an aborted transaction.
        last = whole(client, name).end
        for start in range(0, last, 13):
            piece = OffsetRange(TopicPartition(name, 0), start, min(start + 30, last))
            assert rows_by_us(client, piece, ReadSettings(fetch_bytes=500)) == [
                row for row in expected if piece.start <= row.offset < piece.end
            ]
        everything = rows_by_librdkafka(broker, name, isolation="read_uncommitted")
        assert len(everything) > len(expected)
        dirty = ReadSettings(isolation=Isolation.READ_UNCOMMITTED)
        assert rows_by_us(client, whole(client, name), dirty) == everything


def test_an_open_transaction_ends_what_can_be_read(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker)
    send(producer_of(broker), name, [b"before"] * 3)
    opened = producer_of(broker, **{"transactional.id": f"open-{name}"})
    opened.init_transactions(60)
    opened.begin_transaction()
    send(opened, name, [b"undecided"] * 4)
    send(producer_of(broker), name, [b"after"] * 5)
    assert whole(client, name).end == 3
    assert whole(client, name, Isolation.READ_UNCOMMITTED).end == 12
    opened.abort_transaction(60)
    wait_for_markers(client, TopicPartition(name, 0))
    rows = rows_by_us(client, whole(client, name))
    assert [row.value for row in rows] == [b"before"] * 3 + [b"after"] * 5


def test_records_of_ten_megabytes(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker, config={"max.message.bytes": "12000000"})
    values = [random.Random(n).randbytes(10_000_000) for n in range(3)]
    send(producer_of(broker, **{"message.max.bytes": 12_000_000}), name, values)
    rows = rows_by_us(client, whole(client, name))
    assert [row.value for row in rows] == values
    assert rows == rows_by_librdkafka(broker, name)


def test_append_time(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker, config={"message.timestamp.type": "LogAppendTime"})
    send(producer_of(broker), name, [b"x"] * 10)
    rows = rows_by_us(client, whole(client, name))
    assert {row.timestamp_type for row in rows} == {1}
    assert rows == rows_by_librdkafka(broker, name)


def test_lost_records_are_named_or_skipped(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker)
    send(producer_of(broker, **{"batch.num.messages": 10}), name, [b"%d" % n for n in range(100)])
    delete_before(broker, name, 40)
    wanted = OffsetRange(TopicPartition(name, 0), 10, 60)
    with pytest.raises(UsageError, match=rf"{name}-0 \[10, 40\) \(30 offsets\)"):
        rows_by_us(client, wanted)
    kept = rows_by_us(client, wanted, ReadSettings(fail_on_data_loss=False))
    assert [row.offset for row in kept] == list(range(40, 60))
    gone = OffsetRange(TopicPartition(name, 0), 10, 30)
    assert rows_by_us(client, gone, ReadSettings(fail_on_data_loss=False)) == []

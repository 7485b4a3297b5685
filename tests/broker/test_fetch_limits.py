"""Micro-batches limited in bytes, against a real broker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.errors import UsageError
from sparkonce.fetch import UNSTARTED, Earliest, Progress, SourceSettings, StreamPlanner, TopicNames, ranges_between
from sparkonce.wire import Client
from tests.broker.fetch_samples import delete_before, producer_of, send
from tests.broker.wire_samples import client_of
from tests.conftest import TopicFactory

SMALL, LARGE = 100, 5_000
SMALL_RECORDS, LARGE_RECORDS = 5_000, 400


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Client]:
    with client_of(broker) as connected:
        yield connected


@pytest.fixture
def uneven(broker: DevBroker, topic: TopicFactory) -> str:
    """A topic with many small records in partition 0 and few large ones in partition 1."""
    name = topic(broker, partitions=2)
    source = random.Random(5)
    producer = producer_of(broker, **{"batch.num.messages": 100})
    send(producer, name, [source.randbytes(SMALL) for _ in range(SMALL_RECORDS)], 0)
    send(producer, name, [source.randbytes(LARGE) for _ in range(LARGE_RECORDS)], 1)
    return name


def planner(client: Client, topic: str, **settings: Any) -> StreamPlanner:
    return StreamPlanner(client, SourceSettings(subscription=TopicNames((topic,)), starting=Earliest(), **settings))


def batches(stream: StreamPlanner) -> list[list[int]]:
    """How many offsets each micro-batch takes of partition 0 and 1, until nothing is left."""
    sizes: list[list[int]] = []
    progress: Progress = UNSTARTED
    while (later := stream.next(progress, unlimited=False)) != progress:
        counts = {piece.topic_partition.partition: piece.offsets for piece in ranges_between(progress, later)}
        sizes.append([counts.get(partition, 0) for partition in (0, 1)])
        progress = later
    return sizes


def test_a_limit_in_bytes(client: Client, uneven: str) -> None:
    max_bytes = 300_000
    stream = planner(client, uneven, max_bytes=max_bytes)
    taken = batches(stream)
    # A record has about ten bytes besides its value, and every third one some headers.
    sizes = [small * (SMALL + 13) + large * (LARGE + 14) for small, large in taken]
    assert all(0.8 * max_bytes < size < 1.2 * max_bytes for size in sizes[:-1]), sizes
    assert [sum(column) for column in zip(*taken, strict=True)] == [SMALL_RECORDS, LARGE_RECORDS]
    assert planner(client, uneven).next(UNSTARTED, unlimited=False) == stream.newest


def test_the_smaller_limit_wins(client: Client, uneven: str) -> None:
    by_offsets = planner(client, uneven, max_offsets=100, max_bytes=10**9).next(UNSTARTED, unlimited=False)
    assert 99 <= sum(by_offsets.end.values()) <= 100
    by_bytes = planner(client, uneven, max_offsets=5_000, max_bytes=50_000).next(UNSTARTED, unlimited=False)
    assert sum(by_bytes.end.values()) < 500


def test_a_limit_below_one_record_still_goes_on(client: Client, uneven: str) -> None:
    stream = planner(client, uneven, max_bytes=1)
    progress = stream.next(UNSTARTED, unlimited=False)
    assert list(progress.end.values()) == [1, 1]
    assert list(stream.next(progress, unlimited=False).end.values()) == [2, 2]


def test_record_batches_larger_than_a_look(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker, partitions=3)
    values = [random.Random(n).randbytes(200_000) for n in range(10)]
    for partition in range(3):
        send(producer_of(broker, **{"batch.num.messages": 1}), name, values, partition)
    progress = planner(client, name, max_bytes=1_300_000).next(UNSTARTED, unlimited=False)
    assert list(progress.end.values()) == [2, 2, 2]


def test_what_a_plan_says_of_its_bytes(client: Client, uneven: str) -> None:
    stream = planner(client, uneven)
    everything = stream.next(UNSTARTED, unlimited=False)
    expected = SMALL_RECORDS * (SMALL + 13) + LARGE_RECORDS * (LARGE + 14)
    assert stream.planned_bytes == pytest.approx(expected, rel=0.1)
    stream.next(everything, unlimited=False)
    assert stream.planned_bytes == 0


def test_lost_records_are_not_the_estimates_business(broker: DevBroker, client: Client, uneven: str) -> None:
    stream = planner(client, uneven, max_bytes=300_000)
    progress = stream.next(UNSTARTED, unlimited=False)
    delete_before(broker, uneven, SMALL_RECORDS - 10)
    later = stream.next(progress, unlimited=False)
    assert later != progress
    with pytest.raises(UsageError, match=f"{uneven}-0 "):
        stream.ranges(progress, later)

"""The driver is killed in its first micro-batches, and what its start names moves meanwhile: nothing is skipped and
nothing is read twice."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.model import TopicPartition
from sparkonce.wire import GroupOffset, commit_offsets
from tests.broker.fetch_samples import BASE_MS, producer_of, rows_by_librdkafka, send
from tests.broker.wire_samples import client_of
from tests.cluster.source_pipeline import SourceJob, run
from tests.conftest import TopicFactory

KILLED = -signal.SIGKILL
LATER_MS = BASE_MS + 10**9

Job = Callable[..., SourceJob]


@pytest.fixture
def job(broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> Job:
    name, output = topic(broker), topic(broker)
    write(broker, name, "old", 100)

    def with_options(**options: str) -> SourceJob:
        return SourceJob(broker.bootstrap_servers, name, output, str(tmp_path), options)

    return with_options


def write(broker: DevBroker, topic: str, name: str, count: int, first_ms: int = BASE_MS) -> None:
    send(producer_of(broker), topic, values(name, count), first_ms=first_ms)


def values(name: str, count: int) -> list[bytes | None]:
    return [f"{name}-{number}".encode() for number in range(count)]


def written(broker: DevBroker, job: SourceJob) -> list[bytes | None]:
    """In the order of the output, which has one partition, as the input has."""
    return [row.value for row in rows_by_librdkafka(broker, job.output)]


def test_a_start_at_latest(broker: DevBroker, job: Job) -> None:
    latest = job(start="latest")
    assert run(replace(latest, dies_before=0)) == KILLED
    write(broker, latest.topic, "a", 20)
    assert run(replace(latest, dies_after=1)) == KILLED
    write(broker, latest.topic, "b", 5)
    assert run(latest) == 0
    assert written(broker, latest) == [*values("a", 20), *values("b", 5)]


@pytest.mark.chaos
def test_a_start_at_what_a_group_committed(broker: DevBroker, job: Job) -> None:
    group = f"group-{uuid.uuid4()}"
    committed = job(start="committed", **{"kafka.group.id": group})
    partition = TopicPartition(committed.topic, 0)
    with client_of(broker) as client:
        commit_offsets(client, group, {partition: GroupOffset(30)})
        assert run(replace(committed, dies_before=0)) == KILLED
        commit_offsets(client, group, {partition: GroupOffset(60)})
    write(broker, committed.topic, "a", 5)
    assert run(committed) == 0
    assert written(broker, committed) == [*values("old", 100)[30:], *values("a", 5)]


@pytest.mark.chaos
def test_a_start_at_a_time(broker: DevBroker, job: Job) -> None:
    # All records are older, so that the start is behind them. Later the first one that is not older lies further on.
    late = job(startingTimestamp=str(LATER_MS), startingOffsetsByTimestampStrategy="latest")
    assert run(replace(late, dies_before=0)) == KILLED
    write(broker, late.topic, "older", 20)
    write(broker, late.topic, "newer", 5, first_ms=LATER_MS)
    assert run(replace(late, dies_after=1)) == KILLED
    assert run(late) == 0
    assert written(broker, late) == [*values("older", 20), *values("newer", 5)]

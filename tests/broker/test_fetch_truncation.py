"""Logs that have become shorter than what was read or planned: noticed, named, or gone back to on request."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from sparkonce.errors import RetriableError, SparkonceError, UsageError
from sparkonce.fetch import (
    UNSTARTED,
    Earliest,
    ExactOffsets,
    OffsetRange,
    Progress,
    ReadSettings,
    SourceSettings,
    StreamPlanner,
    TopicNames,
    bounded_ranges,
)
from sparkonce.model import TopicPartition
from sparkonce.wire import Client, Isolation
from tests.broker.fetch_samples import log_end, producer_of, rows_by_us, send
from tests.broker.wire_samples import client_of
from tests.conftest import TopicFactory

WAIT_SECONDS = 90
LENIENT = ReadSettings(fail_on_data_loss=False)


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Client]:
    with client_of(broker) as connected:
        yield connected


def planner(client: Client, topic: str, **settings: Any) -> StreamPlanner:
    chosen = {"starting": Earliest(), "failover_ms": 500, **settings}
    return StreamPlanner(client, SourceSettings(subscription=TopicNames((topic,)), **chosen))


def on_two_brokers(cluster: DevBroker) -> TopicPartition:
    """A topic partition led by broker 0 and followed by broker 1, which may lead without having everything."""
    name = f"unclean-{uuid.uuid4().hex[:12]}"
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic(name, num_partitions=1, replica_assignment=[[0, 1]], config=config)
    admin.create_topics([topic])[name].result(WAIT_SECONDS)
    return TopicPartition(name, 0)


def wait_for(condition: Any) -> None:
    def holds() -> bool:
        try:
            return bool(condition())
        except SparkonceError:
            return False

    assert wait_until(holds, Deadline.after(WAIT_SECONDS))


def test_an_unclean_leader_election(cluster3: DevBroker) -> None:
    partition = on_two_brokers(cluster3)
    name = partition.topic
    send(producer_of(cluster3), name, [b"%d" % n for n in range(50)])
    with client_of(cluster3) as client:
        assert client.leader(partition).broker_id == 0
        cluster3.stop(1)
        # Broker 1 must be out of the in-sync replicas, or nothing can be written that it does not have.
        send(producer_of(cluster3), name, [b"%d" % n for n in range(50, 100)])
        wait_for(lambda: log_end(client, partition) == 100)
        progress = planner(client, name).next(UNSTARTED, unlimited=False)
        assert progress.end == {partition: 100}
    cluster3.kill(0)
    try:
        cluster3.start(1)
        with client_of(cluster3, deadline_ms=10_000) as client:
            wait_for(lambda: log_end(client, partition) == 50)
            with pytest.raises(UsageError, match=rf"Gone: {name}-0 \[50, 100\) \(50 offsets\)"):
                planner(client, name).next(progress, unlimited=False)
            # A process that finds the micro-batch in Spark's log, planned and not done.
            with pytest.raises(UsageError, match=rf"Gone: {name}-0 \[50, 100\) \(50 offsets\)"):
                planner(client, name).ranges(UNSTARTED, progress)
            lenient = planner(client, name, read=LENIENT)
            assert lenient.ranges(UNSTARTED, progress) == (OffsetRange(partition, 0, 50),)
            back = lenient.next(progress, unlimited=False)
            assert back.end == {partition: 50}
            assert lenient.ranges(progress, back) == ()
            send(producer_of(cluster3), name, [b"new"] * 5)
            later = lenient.next(back, unlimited=False)
            assert lenient.ranges(back, later) == (OffsetRange(partition, 50, 55),)
    finally:
        cluster3.start(0)


def test_a_new_leader_has_a_while_to_catch_up(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    partition = TopicPartition(topic(broker), 0)
    send(producer_of(broker), partition.topic, [b"x"] * 10)
    before = planner(client, partition.topic).next(UNSTARTED, unlimited=False)
    ahead = Progress(before.start, {partition: 12}, before.topic_ids)
    pause = client.connections.pause

    def catching_up(seconds: float) -> None:
        send(producer_of(broker), partition.topic, [b"y"])
        pause(seconds)

    client.connections.pause = catching_up  # type: ignore[method-assign]
    assert planner(client, partition.topic, failover_ms=30_000).next(ahead, unlimited=False) == ahead


def test_a_topic_made_anew_under_a_checkpoint_without_ids(
    broker: DevBroker, client: Client, topic: TopicFactory
) -> None:
    name = topic(broker)
    partition = TopicPartition(name, 0)
    send(producer_of(broker), name, [b"x"] * 10)
    # As the built-in source writes it.
    before = Progress({}, {partition: 25})
    with pytest.raises(UsageError, match=rf"Gone: {name}-0 \[10, 25\) \(15 offsets\)"):
        planner(client, name).next(before, unlimited=False)
    frozen = planner(client, name)
    frozen.freeze_target()
    with pytest.raises(UsageError, match=rf"Gone: {name}-0 \[10, 25\) \(15 offsets\)"):
        frozen.next(before, unlimited=False)
    # Also while it waits for more records.
    lenient = planner(client, name, read=LENIENT, min_offsets=5)
    assert lenient.next(before, unlimited=False).end == {partition: 10}


def test_an_open_transaction_is_no_loss(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker)
    partition = TopicPartition(name, 0)
    opened = producer_of(broker, **{"transactional.id": f"open-{name}"})
    opened.init_transactions(WAIT_SECONDS)
    opened.begin_transaction()
    send(opened, name, [b"x"] * 10)
    dirty = planner(client, name, read=ReadSettings(isolation=Isolation.READ_UNCOMMITTED))
    before = dirty.next(UNSTARTED, unlimited=False)
    assert before.end == {partition: 10}
    assert planner(client, name).next(before, unlimited=False) == before
    with pytest.raises(RetriableError, match="nothing came from offset 0 on for 500 ms"):
        rows_by_us(client, OffsetRange(partition, 0, 10), ReadSettings(deadline_ms=500, max_wait_ms=50))
    opened.abort_transaction(WAIT_SECONDS)


@pytest.mark.parametrize("start", [0, 8])
def test_a_task_whose_range_is_cut_off(start: int, broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    partition = TopicPartition(topic(broker), 0)
    send(producer_of(broker), partition.topic, [b"x"] * 5)
    wanted = OffsetRange(partition, start, 9)
    settings = ReadSettings(deadline_ms=1_000, max_wait_ms=50)
    lost = OffsetRange(partition, max(start, 5), 9)
    with pytest.raises(UsageError) as caught:
        rows_by_us(client, wanted, settings)
    assert f"Gone: {lost} ({lost.offsets} offsets)" in str(caught.value)
    lenient = ReadSettings(deadline_ms=1_000, max_wait_ms=50, fail_on_data_loss=False)
    assert [row.offset for row in rows_by_us(client, wanted, lenient)] == list(range(start, 5))


def test_a_bounded_read_beyond_the_end(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker)
    send(producer_of(broker), name, [b"x"] * 5)
    ending = ExactOffsets({TopicPartition(name, 0): 6})
    settings = SourceSettings(subscription=TopicNames((name,)), starting=Earliest(), ending=ending)
    with pytest.raises(UsageError, match=f"{name}-0 cannot be read up to offset 6: it ends at 5 now"):
        bounded_ranges(client, settings)

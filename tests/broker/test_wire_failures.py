"""Brokers that die, stop answering or move: what is retried, what is in doubt, and what the errors say."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.errors import InDoubtError, RetriableError, SparkonceError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.wire import (
    Client,
    Deadline,
    FetchFrom,
    FetchSettings,
    GroupOffset,
    ProduceSettings,
    commit_offsets,
    commit_offsets_in_transaction,
    committed_offsets,
    end_transaction,
    fetch,
    init_producer,
    produce,
)
from sparkonce.wire.client import CoordinatorKind
from tests.broker.wire_samples import client_of, partitions_of, record_batch, values_in
from tests.conftest import TopicFactory

TIMEOUT_MS = 60_000


@contextmanager
def paused(cluster: DevBroker, broker_id: int) -> Iterator[None]:
    cluster.pause(broker_id)
    try:
        yield
    finally:
        cluster.resume(broker_id)


@contextmanager
def killed_later(cluster: DevBroker) -> Iterator[list[int]]:
    """Brokers that the test kills, by id; they are started again at its end."""
    dead: list[int] = []
    try:
        yield dead
    finally:
        for broker_id in dead:
            cluster.start(broker_id)


def test_a_killed_leader_costs_time_but_no_record(cluster3: DevBroker, topic: TopicFactory) -> None:
    name = topic(cluster3, partitions=3)
    partitions = partitions_of(name, 3)
    rounds = 30
    with client_of(cluster3) as client, killed_later(cluster3) as dead:
        identity = init_producer(client, None, 0)
        for number in range(rounds):
            if number == rounds // 2:
                leader = client.leader(partitions[0]).broker_id
                cluster3.kill(leader)
                dead.append(leader)
            batches = {tp: record_batch([f"{number:03d}".encode()], identity, number) for tp in partitions}
            produce(client, batches, deadline=Deadline.after_ms(90_000))
        assert client.leader(partitions[0]).broker_id not in dead
        # A client that still believes in the dead leader reads on at the new one.
        fetched = fetch(client, {tp: FetchFrom(0) for tp in partitions}, deadline=Deadline.after_ms(90_000))
        assert {f.high_watermark for f in fetched.values()} == {rounds}
    expected = [f"{number:03d}".encode() for number in range(rounds)]
    assert values_in(cluster3, name, 3) == expected * 3


def test_a_fetch_under_way_survives_its_leaders_death(cluster3: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(cluster3), 0)
    with client_of(cluster3) as client, killed_later(cluster3) as dead:
        produce(client, {tp: record_batch([b"a"])}, ProduceSettings(idempotent=False))
        leader = client.leader(tp).broker_id
        cluster3.kill(leader)
        dead.append(leader)
        until = Deadline.after_ms(90_000)
        # A new leader may not know yet that the record is on all replicas, and shows nothing until it does.
        while not len(fetch(client, {tp: FetchFrom(0)}, FetchSettings(max_wait_ms=100), until)[tp].records):
            assert not until.expired


def test_a_paused_leader_is_named_when_time_runs_out(cluster3: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(cluster3), 0)
    with client_of(cluster3, request_timeout_ms=1_000, connect_timeout_ms=1_000) as client:
        identity = init_producer(client, None, 0)
        produce(client, {tp: record_batch([b"a"], identity, 0)})
        leader = client.leader(tp)
        with paused(cluster3, leader.broker_id):
            began = time.monotonic()
            with pytest.raises(RetriableError, match=str(leader)) as caught:
                produce(client, {tp: record_batch([b"b"], identity, 1)}, deadline=Deadline.after_ms(3_000))
            assert time.monotonic() - began < 40
            assert caught.value.fault is not None
            assert caught.value.fault.code is None
        # The same bytes again: if the first attempt was written after all, the broker recognises it.
        produce(client, {tp: record_batch([b"b"], identity, 1)}, deadline=Deadline.after_ms(90_000))
    assert values_in(cluster3, tp.topic, 1) == [b"a", b"b"]


def test_a_leader_paused_for_good_is_replaced(cluster3: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(cluster3), 0)
    with client_of(cluster3, request_timeout_ms=1_000, connect_timeout_ms=1_000) as client:
        identity = init_producer(client, None, 0)
        produce(client, {tp: record_batch([b"a"], identity, 0)})
        with paused(cluster3, client.leader(tp).broker_id):
            produce(client, {tp: record_batch([b"b"], identity, 1)}, deadline=Deadline.after_ms(90_000))
    assert values_in(cluster3, tp.topic, 1) == [b"a", b"b"]


def test_an_end_that_the_coordinator_did_not_answer_is_in_doubt(cluster3: DevBroker, topic: TopicFactory) -> None:
    tp, transactional_id, group = TopicPartition(topic(cluster3), 0), f"tx-{uuid.uuid4()}", f"group-{uuid.uuid4()}"
    with client_of(cluster3, request_timeout_ms=1_000, connect_timeout_ms=1_000) as client:
        identity = init_producer(client, transactional_id, TIMEOUT_MS, deadline=Deadline.after_ms(90_000))
        batch = record_batch([b"x"], identity, 0, transactional=True)
        produce(client, {tp: batch}, ProduceSettings(transactional_id=transactional_id))
        commit_offsets_in_transaction(client, transactional_id, identity, group, {tp: GroupOffset(1, "marker")})
        coordinator = client.coordinator(CoordinatorKind.TRANSACTION, transactional_id, client.deadline())
        with paused(cluster3, coordinator.broker_id), pytest.raises(InDoubtError, match=str(coordinator)):
            end_transaction(client, transactional_id, identity, commit=True)
        # Fence, then look: the marker says what happened, and the records agree with it.
        until = Deadline.after_ms(120_000)
        init_producer(client, transactional_id, TIMEOUT_MS, deadline=until)
        marker = committed_offsets(client, group, [tp], until)
    assert values_in(cluster3, tp.topic, 1) == ([b"x"] if marker else [])


def test_a_coordinator_that_is_not_one_is_looked_up_again(cluster3: DevBroker, topic: TopicFactory) -> None:
    tp, group, transactional_id = TopicPartition(topic(cluster3), 0), f"group-{uuid.uuid4()}", f"tx-{uuid.uuid4()}"
    with client_of(cluster3) as client:
        commit_offsets(client, group, {tp: GroupOffset(4)}, Deadline.after_ms(90_000))
        init_producer(client, transactional_id, TIMEOUT_MS, deadline=Deadline.after_ms(90_000))
        point_elsewhere(client, CoordinatorKind.GROUP, group)
        point_elsewhere(client, CoordinatorKind.TRANSACTION, transactional_id)
        assert committed_offsets(client, group, [tp])[tp].offset == 4
        assert init_producer(client, transactional_id, TIMEOUT_MS).producer_epoch == 1


def point_elsewhere(client: Client, kind: CoordinatorKind, key: str) -> None:
    """Make the client believe in a coordinator that is another broker, as after a move."""
    right = client._coordinators[kind, key]
    wrong = next(a for a in client.metadata(()).brokers.values() if a.broker_id != right.broker_id)
    client._coordinators[kind, key] = wrong


def test_a_coordinator_that_died_is_replaced(cluster3: DevBroker, topic: TopicFactory) -> None:
    tp, transactional_id = TopicPartition(topic(cluster3), 0), f"tx-{uuid.uuid4()}"
    with client_of(cluster3) as client, killed_later(cluster3) as dead:
        until = Deadline.after_ms(120_000)
        identity = init_producer(client, transactional_id, TIMEOUT_MS, deadline=until)
        coordinator = client.coordinator(CoordinatorKind.TRANSACTION, transactional_id, until).broker_id
        cluster3.kill(coordinator)
        dead.append(coordinator)
        following = init_producer(client, transactional_id, TIMEOUT_MS, identity, until)
        assert following.producer_epoch == identity.producer_epoch + 1
        settings = ProduceSettings(transactional_id=transactional_id)
        produce(client, {tp: record_batch([b"x"], following, 0, transactional=True)}, settings, until)
        end_transaction(client, transactional_id, following, until, commit=True)
    assert values_in(cluster3, tp.topic, 1) == [b"x"]


def test_one_living_bootstrap_server_is_enough(cluster3: DevBroker) -> None:
    with client_of(cluster3) as client, killed_later(cluster3) as dead:
        first = cluster3.bootstrap_servers.split(",")[0]
        address = next(a for a in client.metadata(()).brokers.values() if f"{a.host}:{a.port}" == first)
        cluster3.kill(address.broker_id)
        dead.append(address.broker_id)
        with client_of(cluster3) as fresh:
            assert len(fresh.metadata((), Deadline.after_ms(30_000)).brokers) >= 2
        # The older client has lost its only connection and finds another.
        assert len(client.metadata((), Deadline.after_ms(30_000)).brokers) >= 2


def test_an_unreachable_bootstrap_fails_in_seconds() -> None:
    # 192.0.2.0/24 is reserved for documents: nothing there answers.
    options = ConnectionOptions(bootstrap_servers="127.0.0.1:1,192.0.2.1:9092")
    began = time.monotonic()
    with Client(options) as client, pytest.raises(UsageError, match="no bootstrap server could be used") as caught:
        client.metadata(())
    assert time.monotonic() - began < 25
    assert "127.0.0.1:1: Connection refused" in str(caught.value)
    assert "192.0.2.1:9092" in str(caught.value)


def test_every_error_is_ours(cluster3: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(cluster3), 0)
    with client_of(cluster3) as client:
        produce(client, {tp: record_batch([b"a"])}, ProduceSettings(idempotent=False))
        client.close()
        with pytest.raises(SparkonceError, match="closed"):
            fetch(client, {tp: FetchFrom(0)})

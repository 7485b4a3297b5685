"""Whole transactions of a driver, also in doubt, under both protocols; judged by librdkafka."""

from __future__ import annotations

import multiprocessing
import uuid
from typing import Any

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.errors import InDoubtError, RetriableError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.send import Sender, SendSettings
from sparkonce.transaction import State, kafka_transaction, marker_group
from sparkonce.wire import (
    Client,
    GroupOffset,
    TransactionProtocol,
    commit_offsets,
    committed_offsets,
    describe_transaction,
)
from sparkonce.wire.client import CoordinatorKind
from sparkonce.wire.verdicts import error_for
from tests.broker.transaction_samples import TIMEOUT_MS, driver, lose_end, new_id, pre_committed, written
from tests.broker.wire_samples import partitions_of, record_batch, values_in
from tests.conftest import TopicFactory


def test_records_offsets_and_marker_are_one_transaction(either: DevBroker, home: TopicPartition) -> None:
    group, source = f"group-{uuid.uuid4()}", TopicPartition(home.topic, 1)
    with driver(either, new_id(), home) as one:
        assert one.transaction.claim(TIMEOUT_MS) is None
        one.begin()
        one.send({home: [b"a", b"b"], source: [b"c"]})
        one.pre_commit(0, {group: {source: GroupOffset(17)}})
        named = describe_transaction(one.client, one.transactional_id).partitions
        assert {tp.topic for tp in named} == {home.topic, "__consumer_offsets"}
        assert values_in(either, home.topic, 2, settled=False) == []
        assert committed_offsets(one.client, group, [source], require_stable=False) == {}

        assert one.transaction.commit()
        assert one.transaction.read_marker() == one.marker(0)
        assert committed_offsets(one.client, group, [source])[source].offset == 17
        assert committed_offsets(one.client, marker_group(one.transactional_id), [home])[home].offset == 0
    assert values_in(either, home.topic, 2) == [b"a", b"b", b"c"]


def test_an_abort_leaves_the_marker_as_it_was(either: DevBroker, home: TopicPartition) -> None:
    with driver(either, new_id(), home) as one:
        one.transaction.claim(TIMEOUT_MS)
        assert one.run(0, {home: [b"kept"]})
        before = one.transaction.read_marker()
        one.begin()
        one.send({home: [b"dropped"]})
        one.pre_commit(1)
        one.transaction.abort()
        assert one.transaction.read_marker() == before
        one.begin()
        one.transaction.abort()  # nothing was written
        one.transaction.abort()  # and nothing is open
        assert one.transaction.state is State.CLAIMED
        assert one.run(1, {home: [b"again"]})
    assert values_in(either, home.topic, 2) == [b"kept", b"again"]


def test_every_transaction_has_an_epoch_of_its_own(either: DevBroker, home: TopicPartition) -> None:
    epochs = []
    with driver(either, new_id(), home) as one:
        one.transaction.claim(TIMEOUT_MS)
        for number in range(12):
            # Every third one has no records, every fourth is aborted, and the timeout changes once.
            one.begin(TIMEOUT_MS if number < 6 else 2 * TIMEOUT_MS)
            assert one.identity is not None
            epochs.append(one.identity.producer_epoch)
            if number % 3:
                one.send({home: [b"%d" % number]})
            one.pre_commit(number)
            if number % 4 == 1:
                one.transaction.abort()
            else:
                assert one.transaction.commit()
                marker = one.transaction.read_marker()
                assert marker is not None
                assert marker.batch_id == number
    assert epochs == sorted(set(epochs))
    expected = [b"%d" % number for number in range(12) if number % 3 and number % 4 != 1]
    assert values_in(either, home.topic, 2) == expected


def test_a_marker_outlives_its_driver(either: DevBroker, home: TopicPartition) -> None:
    transactional_id = new_id()
    with driver(either, transactional_id, home) as one:
        one.transaction.claim(TIMEOUT_MS)
        assert one.run(6, {home: [b"x"]})
        written = one.marker(6)
        one.begin()
        one.send({home: [b"unfinished"]})
        one.pre_commit(7)
    with driver(either, transactional_id, home) as two:
        assert two.transaction.claim(TIMEOUT_MS) == written
    assert values_in(either, home.topic, 2) == [b"x"]


def test_a_marker_is_found_after_its_home_has_moved(either: DevBroker, home: TopicPartition) -> None:
    """The user has changed the sink's topic. The batch is committed all the same."""
    transactional_id, elsewhere = new_id(), TopicPartition(home.topic, 1)
    with driver(either, transactional_id, home) as one:
        one.transaction.claim(TIMEOUT_MS)
        assert one.run(6, {home: [b"x"]})
    with driver(either, transactional_id, elsewhere) as two:
        assert two.transaction.claim(TIMEOUT_MS) == one.marker(6)
        assert two.run(7, {home: [b"y"]})
    with driver(either, transactional_id, home) as three:
        assert three.transaction.claim(TIMEOUT_MS) == two.marker(7)


def test_offsets_of_another_program_in_the_markers_group(either: DevBroker, home: TopicPartition) -> None:
    with driver(either, new_id(), home) as one:
        commit_offsets(one.client, marker_group(one.transactional_id), {home: GroupOffset(3, "foreign")})
        with pytest.raises(UsageError, match="offsets that sparkonce did not write"):
            one.transaction.claim(TIMEOUT_MS)
        assert one.transaction.state is State.UNCLAIMED


def test_a_home_that_does_not_exist_is_said_before_anybody_is_replaced(either: DevBroker, home: TopicPartition) -> None:
    transactional_id = new_id()
    with driver(either, transactional_id, home) as one:
        one.transaction.claim(TIMEOUT_MS)
        absent = TopicPartition(f"absent-{uuid.uuid4()}", 0)
        with driver(either, transactional_id, absent) as two, pytest.raises(UsageError, match="does not exist"):
            two.transaction.claim(TIMEOUT_MS)
        assert two.transaction.state is State.UNCLAIMED
        assert one.run(0, {home: [b"x"]})


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_without_an_answer(
    either: DevBroker, home: TopicPartition, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    with driver(either, new_id(), home) as one:
        one.transaction.claim(TIMEOUT_MS)
        assert one.run(0, {home: [b"before"]})
        one.begin()
        one.send({home: [b"doubtful"]})
        one.pre_commit(1)
        with monkeypatch.context() as patched:
            lose_end(patched, one.client, applied=applied)
            assert one.transaction.commit() is applied
        marker = one.transaction.read_marker()
        assert marker is not None
        assert marker.batch_id == int(applied)
        assert one.run(2, {home: [b"after"]})
    assert values_in(either, home.topic, 2) == [b"before", *([b"doubtful"] if applied else []), b"after"]


@pytest.mark.parametrize("applied", [True, False])
def test_an_abort_without_an_answer(
    either: DevBroker, home: TopicPartition, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    with driver(either, new_id(), home) as one:
        one.transaction.claim(TIMEOUT_MS)
        one.begin()
        one.send({home: [b"never"]})
        with monkeypatch.context() as patched:
            lose_end(patched, one.client, applied=applied)
            one.transaction.abort()
        assert one.run(0, {home: [b"after"]})
    assert values_in(either, home.topic, 2) == [b"after"]


def test_a_broker_that_falls_silent_while_committing(either: DevBroker, home: TopicPartition) -> None:
    transactional_id = new_id()
    quick: dict[str, Any] = {"request_timeout_ms": 700, "connect_timeout_ms": 700, "deadline_ms": 1_500}
    with driver(either, transactional_id, home, **quick) as one:
        one.transaction.claim(TIMEOUT_MS)
        one.begin()
        one.send({home: [b"x"]})
        one.pre_commit(0)
        either.pause(0)
        try:
            with pytest.raises(InDoubtError, match="Nothing is lost: when the query is started again"):
                one.transaction.commit()
        finally:
            either.resume(0)
        assert one.transaction.state is State.IN_DOUBT
        with pytest.raises(RuntimeError, match="BEGIN is not possible in the state IN_DOUBT"):
            one.begin()
    with driver(either, transactional_id, home) as two:
        # The request may have been waiting in the broker's socket: the marker and the records tell the same.
        marker = two.transaction.claim(TIMEOUT_MS)
    assert values_in(either, home.topic, 2) == ([] if marker is None else [b"x"])


def test_an_abort_can_be_tried_again(either: DevBroker, home: TopicPartition) -> None:
    quick: dict[str, Any] = {"request_timeout_ms": 700, "connect_timeout_ms": 700, "deadline_ms": 1_500}
    with driver(either, new_id(), home, **quick) as one:
        one.transaction.claim(TIMEOUT_MS)
        written(one, home)
        either.pause(0)
        try:
            with pytest.raises(RetriableError):
                one.transaction.abort()
        finally:
            either.resume(0)
        assert one.transaction.state is State.OPEN
        one.transaction.abort()
        assert one.run(0, {home: [b"after"]})
    assert values_in(either, home.topic, 2) == [b"after"]


def test_an_id_that_the_broker_has_forgotten(
    either: DevBroker, home: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a week without a transaction (transactional.id.expiration.ms) the id is made anew, and is still ours."""

    def forgotten(*_: object, **__: object) -> None:
        raise error_for("DescribeTransactions", 105, "transactional id")

    with driver(either, new_id(), home) as one:
        one.transaction.claim(TIMEOUT_MS)
        with monkeypatch.context() as patched:
            patched.setattr(kafka_transaction, "describe_transaction", forgotten)
            one.begin(2 * TIMEOUT_MS)
        one.send({home: [b"x"]})
        one.pre_commit(0)
        assert one.transaction.commit()


@pytest.mark.parametrize("applied", [True, False])
def test_the_coordinator_dies_while_the_answer_is_missing(
    cluster3: DevBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    """The next coordinator does not know the epoch before, and calls us fenced: its state still tells the truth."""
    home = TopicPartition(topic(cluster3), 0)
    dead: list[int] = []
    with driver(cluster3, new_id(), home, deadline_ms=90_000) as one:
        one.transaction.claim(TIMEOUT_MS)
        pre_committed(one, home)

        def kill_coordinator() -> None:
            key = (CoordinatorKind.TRANSACTION, one.transactional_id)
            dead.append(one.client.coordinator(*key, one.client.deadline()).broker_id)
            cluster3.kill(dead[0])

        try:
            with monkeypatch.context() as patched:
                lose_end(patched, one.client, applied=applied, meanwhile=kill_coordinator)
                assert one.transaction.commit() is applied
            assert one.run(1, {home: [b"after"]})
        finally:
            for broker_id in dead:
                cluster3.start(broker_id)
    assert values_in(cluster3, home.topic, 1) == [*([b"of A"] if applied else []), b"after"]


def test_in_doubt_covers_every_error_of_finding_out(
    either: DevBroker, home: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driver(either, new_id(), home) as one:
        one.transaction.claim(TIMEOUT_MS)
        one.begin()
        one.pre_commit(0)
        lose_end(monkeypatch, one.client, applied=True)

        def refused(*_: object, **__: object) -> None:
            raise UsageError("the permission was withdrawn")

        monkeypatch.setattr(kafka_transaction, "init_producer", refused)
        with pytest.raises(InDoubtError, match="permission was withdrawn"):
            one.transaction.commit()


def send_in_another_process(servers: str, settings: SendSettings, tp: TopicPartition, count: int) -> None:
    with Client(ConnectionOptions(bootstrap_servers=servers)) as client:
        sender = Sender(client, settings)
        for number in range(count):
            sender.send(tp, record_batch([b"%d-%03d" % (tp.partition, number)]))
        assert sender.finish()[0].record_count == count


def test_two_processes_send_and_one_driver_commits(either: DevBroker, home: TopicPartition) -> None:
    count = 40
    partitions = partitions_of(home.topic, 2)
    with driver(either, new_id(), home) as one:
        one.transaction.claim(TIMEOUT_MS)
        one.begin()
        one.transaction.add_partitions(partitions)
        spawn = multiprocessing.get_context("spawn")
        arguments = [(either.bootstrap_servers, one.settings(), tp, count) for tp in partitions]
        tasks = [spawn.Process(target=send_in_another_process, args=given) for given in arguments]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join(60)
        assert [task.exitcode for task in tasks] == [0, 0]
        one.pre_commit(0)
        assert values_in(either, home.topic, 2, settled=False) == []
        assert one.transaction.commit()
    assert values_in(either, home.topic, 2) == [b"%d-%03d" % (p, n) for p in range(2) for n in range(count)]


def test_the_protocol_is_what_the_fixture_says(broker: DevBroker, broker_tv1: DevBroker) -> None:
    for chosen, expected in ((broker, TransactionProtocol.V2), (broker_tv1, TransactionProtocol.V1)):
        with driver(chosen, new_id(), TopicPartition("any", 0)) as one:
            assert one.transaction.protocol is expected

"""Whole transactions of a driver, in doubt and replaced, under both protocols; judged by librdkafka."""

from __future__ import annotations

import multiprocessing
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.errors import AbortableError, FencedError, InDoubtError, RetriableError, SparkonceError, UsageError
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
    init_producer,
)
from sparkonce.wire.client import CoordinatorKind
from sparkonce.wire.verdicts import error_for
from tests.broker.transaction_samples import TIMEOUT_MS, Driver, after_looking, driver, lose_end, new_id
from tests.broker.wire_samples import client_of, partitions_of, record_batch, values_in
from tests.conftest import TopicFactory


@pytest.fixture(params=["broker", "broker_tv1"])
def either(request: pytest.FixtureRequest) -> DevBroker:
    chosen: DevBroker = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def home(either: DevBroker, topic: TopicFactory) -> TopicPartition:
    return TopicPartition(topic(either, partitions=2), 0)


def test_records_offsets_and_marker_are_one_transaction(either: DevBroker, home: TopicPartition) -> None:
    group, source = f"group-{uuid.uuid4()}", TopicPartition(home.topic, 1)
    with driver(either, new_id(), home) as one:
        assert one.transaction.claim(TIMEOUT_MS) is None
        one.begin()
        one.send({home: [b"a", b"b"], source: [b"c"]})
        one.pre_commit(0, {group: {source: GroupOffset(17)}})
        named = describe_transaction(one.client, one.transactional_id).partitions
        assert {tp.topic for tp in named} == {home.topic, "__consumer_offsets"}
        assert values_in(either, home.topic, 2) == []
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


# Takeover. `phase` is how far the older driver A had come, `lead` how far the newer driver B has come when A goes on.


def no_phase(_one: Driver, _home: TopicPartition) -> None:
    """Claimed, nothing open."""


def begun(one: Driver, home: TopicPartition) -> None:
    one.begin()


def written(one: Driver, home: TopicPartition) -> None:
    one.begin()
    one.send({home: [b"of A"]})


def pre_committed(one: Driver, home: TopicPartition) -> None:
    written(one, home)
    one.pre_commit(0)


def claims(two: Driver, home: TopicPartition) -> None:
    two.transaction.claim(TIMEOUT_MS)


def has_one_open(two: Driver, home: TopicPartition) -> None:
    claims(two, home)
    two.begin()
    two.send({home: [b"open"]})


def has_aborted(two: Driver, home: TopicPartition) -> None:
    has_one_open(two, home)
    two.transaction.abort()


def has_committed(two: Driver, home: TopicPartition) -> None:
    claims(two, home)
    assert two.run(0, {home: [b"first"]})


LEADS = [claims, has_one_open, has_aborted, has_committed]
Move = Callable[[Driver, TopicPartition], None]
VISIBLE: dict[Move, list[bytes]] = {
    claims: [b"next"],
    has_one_open: [b"open"],
    has_aborted: [b"next"],
    has_committed: [b"first", b"next"],
}


def finish(two: Driver, home: TopicPartition, lead: Move) -> None:
    """B is not disturbed: what it has open is committed, or a further batch is, at the first attempt."""
    if lead is has_one_open:
        two.pre_commit(1)
        assert two.transaction.commit()
    else:
        assert two.run(1, {home: [b"next"]})


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("phase", [no_phase, begun, written, pre_committed])
def test_a_replaced_driver_stops_for_good(either: DevBroker, home: TopicPartition, phase: Move, lead: Move) -> None:
    transactional_id = new_id()
    with (
        driver(either, transactional_id, home, "host-a") as one,
        driver(either, transactional_id, home, "host-b") as two,
    ):
        one.transaction.claim(TIMEOUT_MS)
        phase(one, home)
        lead(two, home)
        with pytest.raises(FencedError, match="process 4711 on host-b, query query-of-host-b") as fenced:
            go_on(one, home)
        assert "host-a" in str(fenced.value)
        assert one.transaction.state is State.FENCED
        # It is told the same whatever it tries, and asks the broker for nothing.
        attempts: list[Callable[[], object]] = [one.begin, one.transaction.commit, one.transaction.abort]
        for attempt in attempts:
            with pytest.raises(FencedError, match="host-b"):
                attempt()
        finish(two, home, lead)
        if one.identity is not None:
            with pytest.raises(SparkonceError):
                one.send({home: [b"late"]})
        assert two.run(2, {TopicPartition(home.topic, 1): [b"last"]})
    assert values_in(either, home.topic, 2) == [*VISIBLE[lead], b"last"]


def go_on(one: Driver, home: TopicPartition) -> None:
    """What the sink would do next."""
    if one.transaction.state is State.CLAIMED:
        one.run(0, {home: [b"late"]})
    elif one.transaction.state is State.OPEN:
        one.pre_commit(0)
    else:
        one.transaction.commit()


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("phase", [begun, pre_committed])
def test_a_replaced_driver_cannot_abort(either: DevBroker, home: TopicPartition, phase: Move, lead: Move) -> None:
    transactional_id = new_id()
    with (
        driver(either, transactional_id, home, "host-a") as one,
        driver(either, transactional_id, home, "host-b") as two,
    ):
        one.transaction.claim(TIMEOUT_MS)
        phase(one, home)
        lead(two, home)
        with pytest.raises(FencedError, match="host-b"):
            one.transaction.abort()
        finish(two, home, lead)
    assert values_in(either, home.topic, 2) == VISIBLE[lead]


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_replaced_while_in_doubt(
    either: DevBroker, home: TopicPartition, monkeypatch: pytest.MonkeyPatch, commit: bool, applied: bool, lead: Move
) -> None:
    """The end is applied, or not; then B takes over; then A finds out. A must neither regain the id nor say that its
    batch is not committed: it would be run again.
    """
    transactional_id = new_id()
    with (
        driver(either, transactional_id, home, "host-a") as one,
        driver(either, transactional_id, home, "host-b") as two,
    ):
        one.transaction.claim(TIMEOUT_MS)
        pre_committed(one, home)
        with monkeypatch.context() as patched:
            lose_end(patched, one.client, applied=applied, meanwhile=lambda: lead(two, home))
            with pytest.raises(FencedError, match="host-b"):
                one.end(commit=commit)
        finish(two, home, lead)
    of_a = [b"of A"] if commit and applied else []
    assert values_in(either, home.topic, 2) == of_a + VISIBLE[lead]


@pytest.mark.parametrize("lead", [claims, has_aborted, has_committed])
@pytest.mark.parametrize("applied", [True, False])
def test_replaced_between_looking_and_asking(
    either: DevBroker, home: TopicPartition, monkeypatch: pytest.MonkeyPatch, applied: bool, lead: Move
) -> None:
    transactional_id = new_id()
    with (
        driver(either, transactional_id, home, "host-a") as one,
        driver(either, transactional_id, home, "host-b") as two,
    ):
        one.transaction.claim(TIMEOUT_MS)
        pre_committed(one, home)
        with monkeypatch.context() as patched:
            lose_end(patched, one.client, applied=applied)
            after_looking(patched, one.client, lambda: lead(two, home))
            with pytest.raises(FencedError, match="host-b"):
                one.transaction.commit()
        finish(two, home, lead)
    assert values_in(either, home.topic, 2) == ([b"of A"] if applied else []) + VISIBLE[lead]


def test_the_worst_moment_costs_the_new_driver_one_attempt(
    either: DevBroker, home: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A's InitProducerId aborts what B has opened since A looked; Kafka checks no epoch there. B still has the id."""
    transactional_id = new_id()
    with (
        driver(either, transactional_id, home, "host-a") as one,
        driver(either, transactional_id, home, "host-b") as two,
    ):
        one.transaction.claim(TIMEOUT_MS)
        pre_committed(one, home)
        with monkeypatch.context() as patched:
            lose_end(patched, one.client, applied=False)
            after_looking(patched, one.client, lambda: has_one_open(two, home))
            with pytest.raises(FencedError, match="host-b"):
                one.transaction.commit()
        assert not finished(two, 1)
        assert two.run(1, {home: [b"again"]})
    assert values_in(either, home.topic, 2) == [b"again"]


def finished(two: Driver, batch_id: int) -> bool:
    """Pre-commit and commit, as the sink does it."""
    try:
        two.pre_commit(batch_id)
    except AbortableError:
        two.transaction.abort()
        return False
    return two.transaction.commit()


def test_half_a_takeover_does_not_stop_the_older_driver(either: DevBroker, home: TopicPartition) -> None:
    """B's first InitProducerId only aborts A's transaction; B dies before it asks again. Nobody else has the id."""
    transactional_id = new_id()
    with driver(either, transactional_id, home) as one, driver(either, transactional_id, home) as two:
        one.transaction.claim(TIMEOUT_MS)
        pre_committed(one, home)
        once: Any = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000, "deadline_ms": 1_000}
        hasty = ConnectionOptions(bootstrap_servers=either.bootstrap_servers, **once)
        with Client(hasty) as dying, pytest.raises(SparkonceError, match="CONCURRENT_TRANSACTIONS"):
            init_producer(dying, transactional_id, TIMEOUT_MS)
        assert one.transaction.commit() is False
        assert one.run(0, {home: [b"again"]})
        # When B comes back after all, A is the one that stops.
        two.transaction.claim(TIMEOUT_MS)
        with pytest.raises(FencedError):
            one.run(1, {home: [b"late"]})
    assert values_in(either, home.topic, 2) == [b"again"]


def stop(one: Driver) -> None:
    """A step that asks the broker, in either state."""
    if one.transaction.state is State.OPEN:
        one.transaction.abort()
    else:
        one.begin(2 * TIMEOUT_MS)


@pytest.mark.parametrize("phase", [no_phase, begun])
def test_replaced_by_a_driver_that_has_only_just_got_its_epoch(
    either: DevBroker, home: TopicPartition, phase: Move
) -> None:
    """B has asked once and not yet twice: the stored epoch is one above A's, as after an abort, but it is B's."""
    transactional_id = new_id()
    with driver(either, transactional_id, home) as one, client_of(either) as two:
        one.transaction.claim(TIMEOUT_MS)
        phase(one, home)
        theirs = init_producer(two, transactional_id, TIMEOUT_MS)
        with pytest.raises(FencedError):
            stop(one)
        assert init_producer(two, transactional_id, TIMEOUT_MS, theirs).producer_epoch == theirs.producer_epoch + 1


def test_three_drivers_in_a_row(either: DevBroker, home: TopicPartition) -> None:
    transactional_id = new_id()
    with (
        driver(either, transactional_id, home, "host-a") as one,
        driver(either, transactional_id, home, "host-b") as two,
        driver(either, transactional_id, home, "host-c") as three,
    ):
        for number, each in enumerate((one, two, three)):
            each.transaction.claim(TIMEOUT_MS)
            assert each.run(number, {home: [b"%d" % number]})
            each.begin()
            each.send({home: [b"open"]})
        for older in (one, two):
            with pytest.raises(FencedError, match="host-c"):
                older.transaction.abort()
        three.pre_commit(3)
        assert three.transaction.commit()
    assert values_in(either, home.topic, 2) == [b"0", b"1", b"2", b"open"]


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
        assert values_in(either, home.topic, 2) == []
        assert one.transaction.commit()
    assert values_in(either, home.topic, 2) == [b"%d-%03d" % (p, n) for p in range(2) for n in range(count)]


def test_the_protocol_is_what_the_fixture_says(broker: DevBroker, broker_tv1: DevBroker) -> None:
    for chosen, expected in ((broker, TransactionProtocol.V2), (broker_tv1, TransactionProtocol.V1)):
        with driver(chosen, new_id(), TopicPartition("any", 0)) as one:
            assert one.transaction.protocol is expected

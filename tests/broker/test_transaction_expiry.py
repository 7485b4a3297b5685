"""Transactions that the broker aborts because they were open for too long: nothing is lost, nobody is replaced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkonce.devbroker import QUICK_JVM, DevBroker
from sparkonce.errors import AbortableError, FencedError
from sparkonce.model import TopicPartition
from sparkonce.transaction import State
from sparkonce.wire import Deadline, describe_transaction
from tests.broker.transaction_samples import TIMEOUT_MS, Driver, after_looking, driver, new_id
from tests.broker.wire_samples import values_in
from tests.conftest import TopicFactory

SHORT_MS = 1_000


@pytest.fixture(scope="module", params=[2, 1], ids=["tv2", "tv1"])
def watchful(request: pytest.FixtureRequest) -> Iterator[DevBroker]:
    """A broker that looks for expired transactions twice a second instead of every ten."""
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with DevBroker(transaction_version=request.param, properties=often, jvm_options=QUICK_JVM) as started:
        yield started


@pytest.fixture
def home(watchful: DevBroker, topic: TopicFactory) -> TopicPartition:
    return TopicPartition(topic(watchful), 0)


def open_until_it_expires(one: Driver, home: TopicPartition, *, pre_commit: bool) -> None:
    one.begin(SHORT_MS)
    one.send({home: [b"expired"]})
    if pre_commit:
        one.pre_commit(0)
    until = Deadline.after_ms(60_000)
    while describe_transaction(one.client, one.transactional_id).state != "CompleteAbort":
        assert not until.expired
        one.client.connections.pause(0.05)


def test_a_commit_that_comes_too_late(watchful: DevBroker, home: TopicPartition) -> None:
    with driver(watchful, new_id(), home) as one:
        one.transaction.claim(SHORT_MS)
        open_until_it_expires(one, home, pre_commit=True)
        assert one.transaction.commit() is False
        assert one.transaction.read_marker() is None
        assert values_in(watchful, home.topic, 1) == []
        assert one.run(0, {home: [b"in time"]})
        assert one.run(1, {home: [b"and on"]})
    assert values_in(watchful, home.topic, 1) == [b"in time", b"and on"]


def test_an_abort_that_comes_too_late(watchful: DevBroker, home: TopicPartition) -> None:
    with driver(watchful, new_id(), home) as one:
        one.transaction.claim(SHORT_MS)
        open_until_it_expires(one, home, pre_commit=False)
        one.transaction.abort()
        assert one.run(0, {home: [b"in time"]})
    assert values_in(watchful, home.topic, 1) == [b"in time"]


def test_offsets_and_records_that_come_too_late(watchful: DevBroker, home: TopicPartition) -> None:
    with driver(watchful, new_id(), home) as one:
        one.transaction.claim(SHORT_MS)
        open_until_it_expires(one, home, pre_commit=False)
        with pytest.raises(AbortableError, match=f"open for {SHORT_MS:,} ms; nothing of it is visible"):
            one.pre_commit(0)
        one.transaction.abort()  # The sink does this after any error; there is nothing left to abort.
        assert one.transaction.state is State.CLAIMED
        one.begin(SHORT_MS)
        one.send({home: [b"expired"]})
        with pytest.raises(AbortableError):
            go_on_sending(one, home)
        one.transaction.abort()
        assert one.run(0, {home: [b"in time"]})
    assert values_in(watchful, home.topic, 1) == [b"in time"]


def go_on_sending(one: Driver, home: TopicPartition) -> None:
    """A task that does not know that the broker has fenced its epoch."""
    until = Deadline.after_ms(60_000)
    while not until.expired:
        one.send({home: [b"expired"]})


@pytest.mark.parametrize("pre_commit", [True, False])
def test_expired_and_then_replaced(watchful: DevBroker, home: TopicPartition, pre_commit: bool) -> None:
    transactional_id = new_id()
    with driver(watchful, transactional_id, home, "a") as one, driver(watchful, transactional_id, home, "b") as two:
        one.transaction.claim(SHORT_MS)
        open_until_it_expires(one, home, pre_commit=pre_commit)
        two.transaction.claim(TIMEOUT_MS)
        with pytest.raises(FencedError, match="on b, query query-of-b"):
            one.end(commit=pre_commit)
        assert two.run(0, {home: [b"of B"]})
    assert values_in(watchful, home.topic, 1) == [b"of B"]


def test_expired_and_replaced_while_looking(
    watchful: DevBroker, home: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sees the abort and that nobody else has the id; B comes; A asks for the epoch behind the abort."""
    transactional_id = new_id()
    with driver(watchful, transactional_id, home, "a") as one, driver(watchful, transactional_id, home, "b") as two:
        one.transaction.claim(SHORT_MS)
        open_until_it_expires(one, home, pre_commit=True)
        after_looking(monkeypatch, one.client, lambda: two.transaction.claim(TIMEOUT_MS))
        with pytest.raises(FencedError, match="on b, query query-of-b"):
            one.transaction.commit()
        assert two.run(0, {home: [b"of B"]})
    assert values_in(watchful, home.topic, 1) == [b"of B"]


def test_the_new_drivers_transaction_expires_too(watchful: DevBroker, home: TopicPartition) -> None:
    """B's expired transaction must not look like A's own."""
    transactional_id = new_id()
    with driver(watchful, transactional_id, home, "a") as one, driver(watchful, transactional_id, home, "b") as two:
        one.transaction.claim(TIMEOUT_MS)
        one.begin()
        two.transaction.claim(SHORT_MS)
        open_until_it_expires(two, home, pre_commit=True)
        with pytest.raises(FencedError, match="on b, query query-of-b"):
            one.transaction.abort()
        assert two.transaction.commit() is False
        assert two.run(0, {home: [b"of B"]})
    assert values_in(watchful, home.topic, 1) == [b"of B"]

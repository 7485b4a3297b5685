"""A driver that was replaced by a newer one, under both protocols; judged by librdkafka.

`phase` is how far the older driver had come, `lead` how far the newer one has come when the older goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.errors import AbortableError, FencedError, SparkonceError
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.transaction import State
from sparkonce.wire import Client, init_producer
from tests.broker.transaction_samples import (
    TIMEOUT_MS,
    Driver,
    after_looking,
    driver,
    lose_end,
    new_id,
    pre_committed,
    rivals,
    written,
)
from tests.broker.wire_samples import client_of, values_in


def no_phase(_one: Driver, _home: TopicPartition) -> None:
    """Claimed, nothing open."""


def begun(one: Driver, home: TopicPartition) -> None:
    one.begin()


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
    with rivals(either, home) as (one, two):
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
    with rivals(either, home) as (one, two):
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
    with rivals(either, home) as (one, two):
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
    with rivals(either, home) as (one, two):
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
    with rivals(either, home) as (one, two):
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

"""Sending to real brokers that fail in the middle: order and exactly once, judged by librdkafka."""

from __future__ import annotations

import random
import threading
import time
import uuid
from typing import Any

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.errors import AbortableError, RetriableError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.send import Sender, SendSettings, sender
from sparkonce.wire import Client, TransactionProtocol, describe_producers, init_producer, send_produce
from sparkonce.wire.verdicts import error_for
from tests.broker.produce_proxy import Fate, proxied
from tests.broker.transaction_samples import TIMEOUT_MS, driver, new_id
from tests.broker.wire_samples import client_of, partitions_of, record_batch, values_in
from tests.conftest import TopicFactory

LARGEST = 2**31 - 1


def idempotent(client: Client, **more: Any) -> SendSettings:
    """A producer of its own, without a transaction."""
    return SendSettings(init_producer(client, None, 0), None, TransactionProtocol.V1, **more)


def numbered(partition: int, number: int) -> list[bytes]:
    """One to three records with their place."""
    return [b"%d-%05d-%d" % (partition, number, i) for i in range(1 + number % 3)]


def send_numbered(sending: Sender, partitions: list[TopicPartition], count: int) -> list[bytes]:
    """Some batches for each partition, in turns; gives what must be found."""
    for number in range(count):
        for tp in partitions:
            sending.send(tp, record_batch(numbered(tp.partition, number)))
    return [value for tp in partitions for number in range(count) for value in numbered(tp.partition, number)]


def test_receipts_order_and_counts(broker: DevBroker, topic: TopicFactory) -> None:
    partitions = partitions_of(topic(broker, partitions=3), 3)
    with client_of(broker) as client:
        sending = Sender(client, idempotent(client))
        expected = send_numbered(sending, partitions, 50)
        receipts = sending.finish()
    assert [receipt.partition for receipt in receipts] == partitions
    assert {(receipt.record_count, receipt.batch_count) for receipt in receipts} == {(len(expected) // 3, 50)}
    assert all(receipt.sent_bytes > 50 * 61 for receipt in receipts)
    assert values_in(broker, partitions[0].topic, 3) == expected


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_connections_that_break_in_a_transaction(
    either: DevBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    partitions = partitions_of(topic(either, partitions=2), 2)
    dice = random.Random(seed)
    fates = [dice.choices(list(Fate), [8, 1, 1])[0] for _ in range(1_000)]
    with (
        driver(either, new_id(), partitions[0], retry_backoff_ms=5, retry_backoff_max_ms=20) as one,
        proxied(either, monkeypatch, fates.__getitem__) as proxy,
    ):
        one.transaction.claim(TIMEOUT_MS)
        one.begin()
        one.transaction.add_partitions(partitions)
        sending = Sender(one.client, one.settings())
        expected = send_numbered(sending, partitions, 60)
        sending.finish()
        one.pre_commit(0)
        assert one.transaction.commit()
        one.transaction.wait_for_readers()
        assert {Fate.LOST_REQUEST, Fate.LOST_ANSWER} <= set(proxy.fates)
    assert values_in(either, partitions[0].topic, 2) == expected


@pytest.mark.parametrize("first", [Fate.LOST_REQUEST, Fate.LOST_ANSWER])
def test_the_very_first_batch_is_lost(
    broker: DevBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, first: Fate
) -> None:
    """A leader that has never seen the producer would take the second batch as the first."""
    partitions = partitions_of(topic(broker), 1)
    with (
        client_of(broker) as client,
        proxied(broker, monkeypatch, lambda n: first if n == 0 else Fate.PASS),
    ):
        sending = Sender(client, idempotent(client))
        expected = send_numbered(sending, partitions, 10)
        sending.finish()
    assert values_in(broker, partitions[0].topic, 1) == expected


def test_a_refused_batch_and_those_behind_it(
    broker: DevBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tp = TopicPartition(topic(broker), 0)
    calls, seen = [0], set()

    class Refused:
        """An answer of the broker that it would give while replicas are missing."""

        def result(self, *_: object) -> object:
            return {tp: error_for("Produce", 19, str(tp))}

    def scripted(*arguments: Any) -> Any:
        calls[0] += 1
        return Refused() if calls[0] in (4, 12, 13) else Watched(send_produce(*arguments))

    class Watched:
        def __init__(self, handle: Any) -> None:
            self._handle = handle

        def result(self, *arguments: Any) -> Any:
            outcome = self._handle.result(*arguments)
            fault = getattr(outcome[tp], "fault", None)
            seen.add(fault and fault.code)
            return outcome

    monkeypatch.setattr(sender, "send_produce", scripted)
    with client_of(broker) as client:
        sending = Sender(client, idempotent(client))
        expected = send_numbered(sending, [tp], 20)
        sending.finish()
    assert seen == {None, 45}, "those behind a refused batch were to be out of order"
    assert values_in(broker, tp.topic, 1) == expected


def test_an_answer_that_is_lost_twice(broker: DevBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader recognises a repetition among its last five batches: those behind it that got their answer count."""
    tp = TopicPartition(topic(broker), 0)
    calls = [0]

    class AnswerLost:
        def __init__(self, handle: Any) -> None:
            self._handle = handle

        def result(self, *arguments: Any) -> Any:
            assert not isinstance(self._handle.result(*arguments)[tp], RetriableError)
            return {tp: RetriableError("the connection broke")}

    def scripted(*arguments: Any) -> Any:
        calls[0] += 1
        handle = send_produce(*arguments)
        return AnswerLost(handle) if calls[0] in (2, 3, 8) else handle

    monkeypatch.setattr(sender, "send_produce", scripted)
    with client_of(broker) as client:
        sending = Sender(client, idempotent(client))
        expected = send_numbered(sending, [tp], 20)
        sending.finish()
    assert calls[0] == 20 + 3, "the second and third batch were to be repeated, the third twice"
    assert values_in(broker, tp.topic, 1) == expected


def test_a_gap_is_an_error(broker: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(broker), 0)
    with client_of(broker) as client:
        sending = Sender(client, idempotent(client))
        sending.send(tp, record_batch([b"a"]))
        sending._lanes[tp].sequence += 1
        sending.send(tp, record_batch([b"c"]))
        with pytest.raises(AbortableError, match=f"{tp}.*OUT_OF_ORDER_SEQUENCE_NUMBER"):
            sending.finish()
    assert values_in(broker, tp.topic, 1) == [b"a"]


def test_sequences_begin_again_after_the_last(broker: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(broker), 0)
    with client_of(broker) as client:
        settings = idempotent(client)
        sending = Sender(client, settings)
        # A leader accepts any first sequence of a producer that it does not know.
        sending._lanes[tp] = sender._Lane(tp, sequence=LARGEST - 10)
        expected = send_numbered(sending, [tp], 20)
        sending.finish()
        (state,) = describe_producers(client, [tp])[tp]
        assert state.last_sequence == len(expected) - 12
    assert values_in(broker, tp.topic, 1) == expected


def test_a_batch_that_is_too_large(broker: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(broker, config={"max.message.bytes": "2000"}), 0)
    began = time.monotonic()
    with client_of(broker) as client:
        sending = Sender(client, idempotent(client))
        sending.send(tp, record_batch([b"x" * 5_000]))
        with pytest.raises(UsageError, match=rf"{tp}.*MESSAGE_TOO_LARGE.*max\.message\.bytes"):
            sending.finish()
    assert time.monotonic() - began < 30


def test_a_topic_that_does_not_exist(broker: DevBroker) -> None:
    tp = TopicPartition(f"absent-{uuid.uuid4()}", 0)
    began = time.monotonic()
    with client_of(broker) as client:
        sending = Sender(client, idempotent(client))
        with pytest.raises(UsageError, match=f"{tp.topic}.*does not exist"):
            sending.send(tp, record_batch([b"x"]))
    assert time.monotonic() - began < 40


def test_a_silent_broker_is_waited_for_until_the_deadline(broker: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(broker), 0)
    with client_of(broker, request_timeout_ms=400, connect_timeout_ms=400) as client:
        sending = Sender(client, idempotent(client, deadline_ms=1_500))
        sending.send(tp, record_batch([b"a"]))
        sending.finish()
        broker.pause(0)
        try:
            began = time.monotonic()
            sending.send(tp, record_batch([b"b"]))
            with pytest.raises(RetriableError, match=r"no answer.*gave up after"):
                sending.finish()
            assert 0.3 < time.monotonic() - began < 30
        finally:
            broker.resume(0)


def test_computing_does_not_use_up_the_deadline(broker: DevBroker, topic: TopicFactory) -> None:
    partitions = partitions_of(topic(broker), 1)
    with client_of(broker) as client:
        sending = Sender(client, idempotent(client, deadline_ms=1_000))
        expected = send_numbered(sending, partitions, 3)
        time.sleep(1.2)  # the task computes its next batch
        sending.send(partitions[0], record_batch([b"9"]))
        sending.finish()
    assert values_in(broker, partitions[0].topic, 1) == [*expected, b"9"]


def test_many_tasks_begin_at_once(either: DevBroker, topic: TopicFactory) -> None:
    """The coordinator adds one partition of an id at a time and turns the others away; they come back."""
    partitions = partitions_of(topic(either, partitions=12), 12)
    failures: list[Exception] = []
    with driver(either, new_id(), partitions[0]) as one:
        one.transaction.claim(TIMEOUT_MS)
        one.begin()
        one.transaction.add_partitions(partitions)
        settings, start = one.settings(), threading.Barrier(len(partitions))

        def task(tp: TopicPartition) -> None:
            with client_of(either) as client:
                sending = Sender(client, settings)
                start.wait()
                try:
                    send_numbered(sending, [tp], 8)
                    sending.finish()
                except Exception as error:  # for the test's own thread to see
                    failures.append(error)

        threads = [threading.Thread(target=task, args=(tp,)) for tp in partitions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        one.pre_commit(0)
        assert one.transaction.commit()
        one.transaction.wait_for_readers()
    found = values_in(either, partitions[0].topic, 12)
    assert found == [value for tp in partitions for number in range(8) for value in numbered(tp.partition, number)]


def test_the_leader_dies_while_batches_are_under_way(cluster3: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(cluster3), 0)
    dead = []
    try:
        with client_of(cluster3) as client:
            sending = Sender(client, idempotent(client))
            for number in range(200):
                if number == 100:
                    dead.append(client.leader(tp).broker_id)
                    cluster3.kill(dead[0])
                sending.send(tp, record_batch(numbered(0, number)))
            sending.finish()
            assert client.leader(tp).broker_id not in dead
    finally:
        for broker_id in dead:
            cluster3.start(broker_id)
    expected = [value for number in range(200) for value in numbered(0, number)]
    assert values_in(cluster3, tp.topic, 1) == expected


def test_two_attempts_of_one_share_would_lose_records_without_a_word(either: DevBroker, topic: TopicFactory) -> None:
    """Why the driver grants a share to one attempt only: a stage that ran again and gives other rows sends them under
    the same sequence numbers, Kafka takes them for repetitions, and acknowledges what it throws away.
    """
    (tp,) = partitions_of(topic(either), 1)
    with driver(either, new_id(), tp) as attempts:
        attempts.transaction.claim(TIMEOUT_MS)
        attempts.begin()
        (first,), (second,) = attempts.send({tp: [b"a", b"b"]}), attempts.send({tp: [b"c", b"d"]})
        assert (first.record_count, second.record_count) == (2, 2)
        attempts.pre_commit(0)
        assert attempts.transaction.commit()
    assert values_in(either, tp.topic, 1) == [b"a", b"b"]

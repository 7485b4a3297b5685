"""Tasks that send in turns: who is next, and what becomes of all when one of them fails."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from sparkonce.errors import AbortableError, RetriableError, SparkonceError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.spark import grant_round, grant_task
from sparkonce.spark.grant_channel import Channel, ChannelError
from sparkonce.spark.grant_desk import GrantDesk
from sparkonce.spark.grant_task import ShareLostError
from sparkonce.spark.grant_turns import TurnTaking, take_turns
from sparkonce.spark.kept import Piece
from sparkonce.spark.one_stage import SENT_TOGETHER_BYTES, sent_together
from sparkonce.spark.turns import Records, Turns
from tests.unit.grant_samples import failing

PLACES = [TopicPartition("orders", index) for index in range(4)]


def complete(*counts: Records) -> Turns:
    turns = Turns(len(counts))
    for task, records in enumerate(counts):
        assert turns.enter(task)
        assert not turns.is_complete
        turns.join(task, records)
    assert turns.is_complete
    return turns


def test_a_partition_goes_from_task_to_task() -> None:
    first, second, third, _ = PLACES
    turns = complete({first: 5, second: 7}, {}, {second: 2, third: 1, first: 4})
    assert turns.partitions == [first, second, third]
    assert (turns.taken(0), turns.taken(1), turns.taken(2)) == ([first, second], [], [third])
    assert turns.taken(0) == []
    assert not turns.is_turn(2)
    turns.finish(0, second)
    assert turns.is_turn(2)
    assert turns.taken(2) == [second]
    turns.finish(0, first)
    assert turns.taken(2) == [first]
    assert [turns.first_sequence(2, partition) for partition in PLACES] == [5, 7, 0, 0]
    assert turns.first_sequence(0, first) == 0


def test_sequence_numbers_begin_again_at_the_highest() -> None:
    assert complete({PLACES[0]: 2**31 - 1}, {PLACES[0]: 5}, {PLACES[0]: 1}).first_sequence(2, PLACES[0]) == 4


def test_a_task_comes_once() -> None:
    turns = Turns(2)
    assert turns.enter(0)
    assert not turns.enter(0)


def test_nobody_begins_once_one_has_left() -> None:
    turns = Turns(2)
    turns.join(0, {PLACES[0]: 1})
    turns.leave(0)
    turns.join(1, {PLACES[0]: 1})
    assert not turns.is_complete
    assert not turns.is_turn(1)


@pytest.mark.parametrize("task", [1, 2])
def test_only_the_one_whose_turn_it_is_can_finish(task: int) -> None:
    turns = complete({PLACES[0]: 1}, {PLACES[0]: 1}, {})
    with pytest.raises(ValueError, match="not the turn of task"):
        turns.finish(task, PLACES[0])


@pytest.mark.parametrize("seed", range(20))
def test_everything_is_sent_in_the_order_of_the_tasks(seed: int) -> None:
    """Whatever the order in which the tasks get on: sequence numbers have no gaps, and nobody is forgotten."""
    chance = random.Random(seed)
    tasks = chance.randint(1, 8)
    counts = [{place: chance.randint(1, 9) for place in PLACES if chance.random() < 0.6} for _ in range(tasks)]
    turns = complete(*counts)
    sent: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    under_way: list[tuple[int, TopicPartition]] = []
    while any(map(turns.is_turn, range(tasks))) or under_way:
        task = chance.randrange(tasks)
        for partition in turns.taken(task):
            sent[partition].append((task, turns.first_sequence(task, partition)))
            under_way.append((task, partition))
        if under_way:
            turns.finish(*under_way.pop(chance.randrange(len(under_way))))
    for partition in PLACES:
        expected, following = [], 0
        for task, records in enumerate(counts):
            if partition in records:
                expected.append((task, following))
                following += records[partition]
        assert sent[partition] == expected


@contextmanager
def task_of(desk: GrantDesk, task: int, tasks: int = 2) -> Iterator[TurnTaking]:
    with take_turns(desk.address, "round", task, tasks) as turn:
        yield turn


def waits(answer: Future[Records]) -> None:
    with pytest.raises(TimeoutError):
        answer.result(0.3)


def test_sending_begins_when_all_have_encoded(desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    announced: list[list[TopicPartition]] = []
    desk.open_round("round", announced.append)
    first, second = PLACES[:2]
    with task_of(desk, 0) as zero, task_of(desk, 1) as one:
        waiting = pool.submit(one.join, {first: 3, second: 1})
        waits(waiting)
        assert (announced, desk.open_seconds()) == ([], 0)
        assert zero.join({first: 5}) == {first: 0}
        assert announced == [[first, second]]
        assert desk.open_seconds() > 0
        assert waiting.result(20) == {second: 0}
        waiting = pool.submit(one.next)
        waits(waiting)
        zero.finish([first])
        zero.report_done()
        assert waiting.result(20) == {first: 5}
        one.finish([first, second])
        one.report_done()
    assert announced == [[first, second]]


def test_a_task_without_rows_holds_up_nobody(desk: GrantDesk) -> None:
    with task_of(desk, 0) as zero:
        assert zero.join({}) == {}
        zero.report_done()
    with task_of(desk, 1) as one:
        assert one.join({PLACES[0]: 1}) == {PLACES[0]: 0}
        one.report_done()


def test_a_task_that_ends_while_it_sends_takes_all_with_it(desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    with task_of(desk, 1) as one:
        with task_of(desk, 0) as zero:
            waiting = pool.submit(one.join, {PLACES[0]: 3})
            assert zero.join({PLACES[0]: 5}) == {PLACES[0]: 0}
        with pytest.raises(ShareLostError, match="task 0, which was sending, ended without finishing"):
            waiting.result(20)
    with pytest.raises(ShareLostError, match="task 0, which was sending"), task_of(desk, 0):
        pass


def test_a_task_that_ends_before_is_not_what_the_others_fail_of(desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    """They wait until Spark ends them, or until its job has failed and the round is over."""
    with task_of(desk, 1) as one:
        with task_of(desk, 0):
            waiting = pool.submit(one.join, {PLACES[0]: 3})
        waits(waiting)
        desk.close_round()
        with pytest.raises(ShareLostError, match="this run of the micro-batch is over"):
            waiting.result(20)


def test_a_task_that_is_started_again_ends_the_round(desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    with task_of(desk, 1) as one:
        waiting = pool.submit(one.join, {PLACES[0]: 3})
        with task_of(desk, 0):
            pass
        with pytest.raises(ShareLostError, match="task 0 was started again"), task_of(desk, 0):
            pass
        with pytest.raises(ShareLostError, match="task 0 was started again"):
            waiting.result(20)


@pytest.mark.parametrize("error", [UsageError("the record is too large"), RetriableError("not enough replicas")])
@pytest.mark.parametrize("is_sending", [True, False])
def test_why_a_task_failed_is_told_to_all(
    error: SparkonceError, is_sending: bool, desk: GrantDesk, pool: ThreadPoolExecutor
) -> None:
    expected = UsageError if isinstance(error, UsageError) else ShareLostError

    def fail() -> None:
        with task_of(desk, 0) as zero:
            if is_sending:
                zero.join({PLACES[0]: 5})
            raise error

    with task_of(desk, 1) as one:
        waiting = pool.submit(one.join, {PLACES[0]: 3})
        with pytest.raises(type(error)):
            fail()
        with pytest.raises(expected, match=f"Spark partition 1 of the micro-batch cannot be sent: {error}"):
            waiting.result(20)
    with pytest.raises(expected, match=str(error)), task_of(desk, 0):
        pass


@pytest.mark.parametrize("error", [UsageError("grant WRITE"), AbortableError("expired"), RuntimeError("a bug")])
def test_partitions_that_cannot_be_announced(error: Exception, desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    desk.open_round("round", failing(error))
    expected = UsageError if isinstance(error, UsageError) else ShareLostError
    with task_of(desk, 0) as zero, task_of(desk, 1) as one:
        waiting = pool.submit(zero.join, {PLACES[0]: 3})
        with pytest.raises(expected, match=str(error)):
            one.join({PLACES[1]: 3})
        with pytest.raises(expected, match=str(error)):
            waiting.result(20)


def test_those_who_wait_hear_that_the_driver_lives(
    desk: GrantDesk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grant_round, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(grant_task, "ANSWER_SECONDS", 2.0)
    with task_of(desk, 0) as zero, task_of(desk, 1) as one:
        waiting = pool.submit(one.join, {PLACES[0]: 3})
        with pytest.raises(TimeoutError):
            waiting.result(3.0)
        zero.join({})
        assert waiting.result(20) == {PLACES[0]: 0}
        one.report_done()


@pytest.mark.parametrize("message", [{}, {"records": 5}, {"records": [["orders"]]}, {"records": [["orders", 0, "x"]]}])
def test_nonsense_about_what_was_encoded(message: dict[str, object], desk: GrantDesk) -> None:
    with Channel.connect(desk.address.host, desk.address.port, desk.address.key) as channel:
        channel.send({"round": "round", "task": 0, "tasks": 1}, 5)
        assert channel.receive(20) == {"answer": "encode"}
        channel.send(message, 5)
        with pytest.raises(ChannelError, match="closed"):
            channel.receive(20)


@pytest.mark.parametrize("finished", [5, [["orders"]], [["orders", 3]]])
def test_nonsense_about_what_is_finished(finished: object, desk: GrantDesk) -> None:
    with Channel.connect(desk.address.host, desk.address.port, desk.address.key) as channel:
        channel.send({"round": "round", "task": 0, "tasks": 1}, 5)
        assert channel.receive(20) == {"answer": "encode"}
        channel.send({"records": [["orders", 0, 1]]}, 5)
        assert channel.receive(20) == {"answer": "send", "partitions": [["orders", 0, 0]]}
        channel.send({"finished": finished}, 5)
        with pytest.raises(ChannelError, match="closed"):
            channel.receive(20)


def test_partitions_with_little_are_sent_to_together() -> None:
    sizes = [[10, 20], [SENT_TOGETHER_BYTES - 30], [1], [SENT_TOGETHER_BYTES * 2]]
    pieces = {place: [Piece(size, b"") for size in held] for place, held in zip(PLACES, sizes, strict=True)}
    first, second, third, fourth = PLACES
    assert list(sent_together(pieces)) == [[first, second], [third], [fourth]]
    assert list(sent_together({})) == []

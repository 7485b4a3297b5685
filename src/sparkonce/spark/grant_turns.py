"""Turns: all tasks of a micro-batch run at the same time, and each sends what it encoded when it is its turn.

    task → driver   {"round": …, "task": 3, "tasks": 8}            it begins
    driver → task   {"answer": "encode"}
    task → driver   {"records": [["orders", 0, 5000], …]}          what it has encoded
    driver → task   {"answer": "send", "partitions": [["orders", 0, 15000], …]}
                                                                   where it may begin, and with which sequence number
    task → driver   {"finished": [["orders", 0], …]}               all is acknowledged there
    task → driver   {"wants": true}                                it waits for its next turn: "send", as above
    task → driver   {"done": true}

`turns` decides whose turn it is. Nothing is granted before all have encoded, so the transaction is open only while
bytes travel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sparkonce.model import TopicPartition
from sparkonce.spark.grant_channel import Channel, ChannelError
from sparkonce.spark.grant_round import MESSAGE_SECONDS, Refusal, Round, read_partition
from sparkonce.spark.grant_task import Conversation, GrantAddress, conversation
from sparkonce.spark.turns import Records, Turns


def serve_turns(round_: Round, channel: Channel, message: dict[str, Any]) -> None:
    """The driver's side: one task, from its start to its end."""
    try:
        task, tasks = int(message["task"]), int(message["tasks"])
    except (KeyError, TypeError, ValueError) as error:
        raise ChannelError(f"not a question: {error}") from error
    turns = _enter(round_, task, tasks)
    is_done = False
    try:
        channel.send({"answer": "encode"}, MESSAGE_SECONDS)
        _join(round_, channel, turns, task)
        while not is_done:
            is_done = _serve_message(round_, channel, turns, task)
    finally:
        if not is_done:
            _leave(round_, turns, task)


def _enter(round_: Round, task: int, tasks: int) -> Turns:
    with round_.changed:
        round_.require_open()
        round_.turns = round_.turns or Turns(tasks)
        if not round_.turns.enter(task):
            round_.refuse(Refusal(f"task {task} was started again"))
            round_.require_open()
        return round_.turns


def _join(round_: Round, channel: Channel, turns: Turns, task: int) -> None:
    message = round_.hear(channel)
    try:
        records = {read_partition(place): int(count) for *place, count in message["records"]}
    except (KeyError, TypeError, ValueError) as error:
        raise ChannelError(f"not what was encoded: {error}") from error
    with round_.changed:
        round_.require_open()
        turns.join(task, records)
        if turns.is_complete:
            round_.announce(turns.partitions)
        round_.changed.notify_all()
    if records:
        _grant(round_, channel, turns, task)


def _grant(round_: Round, channel: Channel, turns: Turns, task: int) -> None:
    round_.wait_for(channel, lambda: turns.is_turn(task))
    with round_.changed:
        places = [[p.topic, p.partition, turns.first_sequence(task, p)] for p in turns.taken(task)]
    channel.send({"answer": "send", "partitions": places}, MESSAGE_SECONDS)


def _serve_message(round_: Round, channel: Channel, turns: Turns, task: int) -> bool:
    """Whether it was the task's last."""
    message = round_.hear(channel)
    if "finished" in message:
        with round_.changed:
            try:
                for place in message["finished"]:
                    turns.finish(task, read_partition(place))
            except (TypeError, ValueError) as error:
                raise ChannelError(f"not what is finished: {error}") from error
            round_.changed.notify_all()
    elif "wants" in message:
        _grant(round_, channel, turns, task)
    return "done" in message


def _leave(round_: Round, turns: Turns, task: int) -> None:
    """A task ended. If nothing was sent yet, the others are not told: Spark's job has failed and will end them. It
    reports the failure that it hears of first, and theirs would hide the cause.
    """
    with round_.changed:
        if turns.is_complete:
            round_.refuse(Refusal(f"task {task}, which was sending, ended without finishing"))
        else:
            turns.leave(task)


@dataclass(frozen=True, slots=True)
class TurnTaking:
    """A task's side."""

    _driver: Conversation

    def join(self, records: Records) -> Records:
        """Everything is encoded; waits for this task's first turn."""
        message = {"records": [[p.topic, p.partition, count] for p, count in records.items()]}
        if records:
            return _places(self._driver.ask(message))
        self._driver.tell(message)
        return {}

    def next(self) -> Records:
        """Waits until it is this task's turn: in which partitions, and at which sequence numbers it begins there."""
        return _places(self._driver.ask({"wants": True}))

    def finish(self, partitions: list[TopicPartition]) -> None:
        """Everything is acknowledged there."""
        self._driver.tell({"finished": [[p.topic, p.partition] for p in partitions]})

    def report_done(self) -> None:
        """Everything is sent."""
        self._driver.tell({"done": True})


def _places(answer: dict[str, Any]) -> Records:
    return {read_partition(place): int(sequence) for *place, sequence in answer["partitions"]}


@contextmanager
def take_turns(address: GrantAddress, round_name: str, task: int, tasks: int) -> Iterator[TurnTaking]:
    """The task's side: keeps the connection while the block encodes and sends."""
    with conversation(address, f"Spark partition {task} of the micro-batch") as driver:
        driver.ask({"round": round_name, "task": task, "tasks": tasks})
        yield TurnTaking(driver)

"""One run of one micro-batch at the driver's desk: who may send, and once nobody may any more, why."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition
from sparkonce.spark.grant_channel import Channel, ChannelError
from sparkonce.spark.turns import Turns

log = logging.getLogger(__name__)

MESSAGE_SECONDS = 10.0
"""How long a message may take that is due at once."""
HEARTBEAT_SECONDS = 5.0

Announce = Callable[[list[TopicPartition]], None]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nobody may send any more."""

    why: str
    is_usage: bool = False
    """Whether a person must change something."""


OVER = Refusal("this run of the micro-batch is over")


class RefusedError(Exception):
    """A task may not send."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.why)
        self.answer = {"answer": "lost", "why": refusal.why, "usage": refusal.is_usage}


@dataclass(slots=True)
class OwnedShare:
    """A share that was granted to an attempt, and what it reported in the end."""

    attempt: int
    receipts: str | None = None


class Round:
    """What is decided about the tasks of a run. Everything happens under its lock, `changed`."""

    def __init__(self, name: str, announce: Announce) -> None:
        self.name = name
        self.changed = threading.Condition()
        self.shares: dict[int, OwnedShare] = {}
        self.turns: Turns | None = None
        self.first_grant_at = 0.0
        self._refusal: Refusal | None = None
        self._announce = announce

    def refuse(self, refusal: Refusal) -> None:
        """From now on nobody may send: the run will be aborted. The first reason stays."""
        with self.changed:
            self._refusal = self._refusal or refusal
            self.changed.notify_all()

    def require_open(self, name: str | None = None) -> None:
        """Raises if nobody may send any more, or if the task's run is another one."""
        if name not in (None, self.name):
            raise RefusedError(OVER)
        if self._refusal is not None:
            raise RefusedError(self._refusal)

    def announce(self, partitions: list[TopicPartition]) -> None:
        """Makes the partitions part of the transaction. The lock is held, so this never happens after the run."""
        self.first_grant_at = self.first_grant_at or time.monotonic()
        try:
            self._announce(partitions)
        except Exception as error:  # whatever it is, nobody may send, and nobody may wait for it
            log.warning("nothing of %s is granted any more: %s", self.name, error)
            self.refuse(Refusal(str(error), isinstance(error, UsageError)))
            self.require_open()

    def wait_for(self, channel: Channel, is_so: Callable[[], bool]) -> None:
        """Tells the task to wait until it is so; raises if nobody may send any more."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: is_so() or self._refusal is not None, HEARTBEAT_SECONDS)
                self.require_open()
                if is_so():
                    return
            channel.send({"answer": "wait"}, MESSAGE_SECONDS)

    def hear(self, channel: Channel) -> dict[str, Any]:
        """The task's next word, however long it takes. If that is its failure, the run is over for all."""
        message = channel.receive(None)
        if "failed" in message:
            self.refuse(Refusal(str(message["failed"]), message.get("usage") is True))
            raise ChannelError("the task failed")
        return message


def read_partition(place: list[Any]) -> TopicPartition:
    """A partition as messages have it."""
    topic, index = place
    return TopicPartition(str(topic), int(index))

"""A task's side of its conversation with the driver's desk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sparkonce.errors import AbortableError, SparkonceError, UsageError
from sparkonce.spark.grant_channel import Channel, ChannelError
from sparkonce.spark.grant_round import MESSAGE_SECONDS

ANSWER_SECONDS = 120.0
"""How long a task waits for the driver's next word. Adding partitions may take the driver a minute."""


@dataclass(frozen=True, slots=True)
class GrantAddress:
    """Where and how tasks ask; it travels to them."""

    host: str
    port: int
    key: bytes = field(repr=False)


class ShareLostError(AbortableError):
    """This run of the micro-batch cannot be finished; the micro-batch must run again."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Questions and reports of one task."""

    what: str
    """Of what it is, for messages."""
    _channel: Channel

    def tell(self, message: dict[str, Any]) -> None:
        """Says what needs no answer."""
        try:
            self._channel.send(message, MESSAGE_SECONDS)
        except ChannelError as error:
            raise ShareLostError(f"the driver cannot be told of {self.what}: {error}") from error

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Waits for the answer, for as long as the driver says so; raises if it is that nothing may be sent."""
        self.tell(question)
        try:
            answer = self._channel.receive(ANSWER_SECONDS)
            while answer.get("answer") == "wait":
                answer = self._channel.receive(ANSWER_SECONDS)
        except ChannelError as error:
            raise ShareLostError(f"the driver did not answer for {self.what}: {error}") from error
        if answer.get("answer") == "lost":
            text = f"{self.what} cannot be sent: {answer.get('why')}"
            raise UsageError(text) if answer.get("usage") else ShareLostError(text)
        return answer


@contextmanager
def conversation(address: GrantAddress, what: str) -> Iterator[Conversation]:
    """Keeps a connection while the block runs: by its end the driver knows of the task's. A failure of ours is told, so
    that those who wait for this task, and Spark's next attempt of it, can say what happened.
    """
    try:
        channel = Channel.connect(address.host, address.port, address.key)
    except ChannelError as error:
        raise ShareLostError(f"the driver could not be asked for {what}: {error}") from error
    with channel:
        try:
            yield Conversation(what, channel)
        except ShareLostError:
            raise
        except SparkonceError as error:
            with suppress(ChannelError):
                channel.send({"failed": str(error), "usage": isinstance(error, UsageError)}, MESSAGE_SECONDS)
            raise

"""Shares: every sending task has partitions of its own, and several attempts of it may run.

The first attempt that asks for a share owns it. Another one waits: if the owner finishes, it gets the owner's receipts
and sends nothing; if the owner dies, the run is lost. Messages:

    attempt → driver   {"round": …, "share": 3, "attempt": 17, "partitions": [["orders", 0], …]}
    driver → attempt   {"answer": "send"} | {"answer": "done", "receipts": "…"}
    owner → driver     {"receipts": "…"}
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sparkonce.model import TopicPartition
from sparkonce.spark.grant_channel import Channel, ChannelError
from sparkonce.spark.grant_round import MESSAGE_SECONDS, OwnedShare, Refusal, Round, read_partition
from sparkonce.spark.grant_task import Conversation, GrantAddress, conversation

log = logging.getLogger(__name__)


def serve_share(round_: Round, channel: Channel, message: dict[str, Any]) -> None:
    """The driver's side: one attempt, from its question to its end."""
    try:
        number, attempt = int(message["share"]), int(message["attempt"])
        partitions = [read_partition(place) for place in message["partitions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ChannelError(f"not a question: {error}") from error
    with round_.changed:
        round_.require_open()
        taken = round_.shares.get(number)
        if taken is None:
            round_.announce(partitions)
            granted = round_.shares[number] = OwnedShare(attempt)
    if taken is None:
        _follow(round_, channel, granted)
        return
    log.info("attempt %d waits: attempt %d sends share %d", attempt, taken.attempt, number)
    round_.wait_for(channel, lambda: taken.receipts is not None)
    channel.send({"answer": "done", "receipts": taken.receipts}, MESSAGE_SECONDS)


def _follow(round_: Round, channel: Channel, share: OwnedShare) -> None:
    """Lets the owner send, and waits for its receipts or its end."""
    try:
        channel.send({"answer": "send"}, MESSAGE_SECONDS)
        receipts = str(round_.hear(channel)["receipts"])
    except (ChannelError, KeyError) as error:
        log.info("attempt %d ended without receipts: %s", share.attempt, error)
        round_.refuse(Refusal(f"attempt {share.attempt}, which was sending, ended without finishing"))
        return
    with round_.changed:
        share.receipts = receipts
        round_.changed.notify_all()


@dataclass(frozen=True, slots=True)
class Grant:
    """An attempt's answer: either the receipts of the attempt that was first, or the permission to send."""

    finished_receipts: str | None
    _driver: Conversation

    def report(self, receipts: str) -> None:
        """Tells the driver what was sent."""
        self._driver.tell({"receipts": receipts})


@contextmanager
def ask_for_share(
    address: GrantAddress, round_name: str, share: int, attempt: int, partitions: list[TopicPartition]
) -> Iterator[Grant]:
    """The task's side: asks, and keeps the connection while the block sends."""
    question = {
        "round": round_name,
        "share": share,
        "attempt": attempt,
        "partitions": [[partition.topic, partition.partition] for partition in partitions],
    }
    with conversation(address, f"share {share} of the micro-batch") as driver:
        yield Grant(driver.ask(question).get("receipts"), driver)

"""Who may send: one listener on the driver, asked by every sending attempt before its first byte.

The broker recognises a repeated batch by its sequence numbers, not by its content. Two attempts of the same sending
task, a speculative copy or a stage that runs again, would therefore be mixed or dropped without a word. So the first
attempt that asks for its share of a micro-batch owns it. Another one waits: if the owner finishes, it gets the owner's
receipts and sends nothing; if the owner dies, it is told so, and the driver runs the micro-batch again under a new
producer epoch, where Kafka itself fences what is left of the old one.

The connection is authenticated with a key that travels in the task's closure. It stays open while the owner sends: that
is how the driver notices the owner's end. Messages:

    attempt → driver   {"round": …, "share": 3, "attempt": 17, "partitions": [["orders", 0], …]}
    driver → attempt   {"answer": "wait"}, every few seconds while another attempt sends, and at last one of
                       {"answer": "send"} | {"answer": "done", "receipts": "…"} | {"answer": "lost", "why": "…"}
    owner → driver     {"receipts": "…"}

Every connection has a thread of its own, from its first byte on: a peer that is silent holds up nobody else.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sparkonce.errors import AbortableError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.spark.grant_channel import Channel, ChannelError

log = logging.getLogger(__name__)

BACKLOG = 512
MESSAGE_SECONDS = 10.0
"""How long a message may take that is due at once."""
HEARTBEAT_SECONDS = 5.0
ANSWER_SECONDS = 120.0
"""How long an attempt waits for the driver's next word. Adding partitions may take the driver a minute."""
_ACCEPT_PAUSE_SECONDS = 0.01
_JOIN_SECONDS = 5.0
_OVER = "this run of the micro-batch is over"


@dataclass(frozen=True, slots=True)
class GrantAddress:
    """Where and how tasks ask; it travels to them."""

    host: str
    port: int
    key: bytes = field(repr=False)


class ShareLostError(AbortableError):
    """The attempt that owned this share of the micro-batch is gone; the micro-batch must run again."""


@dataclass(frozen=True, slots=True)
class _Question:
    round_name: str
    share: int
    attempt: int
    partitions: list[TopicPartition]

    @classmethod
    def read(cls, message: dict[str, Any]) -> _Question:
        try:
            partitions = [TopicPartition(str(topic), int(index)) for topic, index in message["partitions"]]
            return cls(str(message["round"]), int(message["share"]), int(message["attempt"]), partitions)
        except (KeyError, TypeError, ValueError) as error:
            raise ChannelError(f"not a question: {error}") from error


@dataclass(slots=True)
class _Share:
    """A share that was granted. It is decided once: by receipts or by a loss."""

    attempt: int
    receipts: str | None = None
    lost: str | None = None

    @property
    def decided(self) -> bool:
        return self.receipts is not None or self.lost is not None


@dataclass(frozen=True, slots=True)
class _Taken:
    """A share that another attempt owns."""

    share: _Share


class GrantDesk:
    """The driver's side. A round is one run of one micro-batch; shares are its sending tasks."""

    def __init__(self, host: str, bind_host: str, port: int = 0) -> None:
        key = secrets.token_bytes(32)
        family = socket.AF_INET6 if ":" in bind_host else socket.AF_INET
        try:
            self._server = socket.create_server((bind_host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise UsageError(f"the driver cannot listen on {bind_host}:{port} for its tasks: {error}") from error
        self.address = GrantAddress(host, int(self._server.getsockname()[1]), key)
        self._changed = threading.Condition()
        self._round = ""
        self._refusal: dict[str, Any] | None = None
        self._shares: dict[int, _Share] = {}
        self._announce: Callable[[list[TopicPartition]], None] = lambda _: None
        self._closed = False
        self._first_grant_at = 0.0
        self._serving: dict[threading.Thread, Channel] = {}
        # Not the same lock: while partitions are announced, which may take long, others must still be let in.
        self._serving_lock = threading.Lock()
        self._acceptor = threading.Thread(target=self._accept, name="sparkonce-grants", daemon=True)
        self._acceptor.start()

    def open_round(self, name: str, announce: Callable[[list[TopicPartition]], None]) -> None:
        """Starts over with no share granted. `announce` is called with the partitions of each share before it is, by
        one thread at a time and never after the round.
        """
        with self._changed:
            self._round, self._shares, self._announce, self._refusal = name, {}, announce, None
            if name:
                self._first_grant_at = 0.0
            self._changed.notify_all()

    @contextmanager
    def round(self, name: str, announce: Callable[[list[TopicPartition]], None] = lambda _: None) -> Iterator[None]:
        """A round while the block runs its job."""
        self.open_round(name, announce)
        try:
            yield
        finally:
            self.close_round()

    def open_seconds(self) -> float:
        """How long ago the first share of the latest round was granted; 0 if none was."""
        return time.monotonic() - self._first_grant_at if self._first_grant_at else 0.0

    def granted_seconds(self) -> float:
        """How long ago the first share of the round that is open was granted; 0 if none is."""
        return self.open_seconds() if self._round else 0.0

    def close_round(self) -> None:
        """Nobody is granted anything any more."""
        self.open_round("", lambda _: None)

    def close(self) -> None:
        """Ends the listener, its connections and its threads."""
        self.close_round()
        self._closed = True
        with suppress(OSError):  # Not every system can shut down a socket that listens.
            self._server.shutdown(socket.SHUT_RDWR)  # Closing alone would not wake the thread that accepts.
        self._server.close()
        self._acceptor.join(_JOIN_SECONDS)
        with self._serving_lock:
            serving = dict(self._serving)
        for channel in serving.values():
            channel.close()
        for thread in serving:
            thread.join(_JOIN_SECONDS)

    def _accept(self) -> None:
        while not self._closed:
            try:
                channel = Channel(self._server.accept()[0])
            except OSError:
                # Closed, or a peer that went away, or out of file descriptors for now.
                time.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            thread = threading.Thread(target=self._serve, args=(channel,), name="sparkonce-grant", daemon=True)
            with self._serving_lock:
                self._serving[thread] = channel
                thread.start()

    def _serve(self, channel: Channel) -> None:
        try:
            channel.authenticate(self.address.key)
            question = _Question.read(channel.receive(MESSAGE_SECONDS))
            decided = self._decide(question)
            if isinstance(decided, _Share):
                self._follow(channel, decided)
            elif isinstance(decided, _Taken):
                self._keep_waiting(channel, question, decided.share)
            else:
                channel.send(decided, MESSAGE_SECONDS)
        except ChannelError as error:
            log.info("a question for a share was not served: %s", error)
        finally:
            channel.close()
            with self._serving_lock:
                self._serving.pop(threading.current_thread(), None)

    def _decide(self, question: _Question) -> _Share | _Taken | dict[str, Any]:
        """The share if it is granted now, or whose it is, or why nobody gets it."""
        with self._changed:
            if not question.round_name or question.round_name != self._round:
                return _lost(_OVER)
            if self._refusal is not None:
                return self._refusal
            if question.share in self._shares:
                return _Taken(self._shares[question.share])
            self._first_grant_at = self._first_grant_at or time.monotonic()
            try:
                self._announce(question.partitions)
            except Exception as error:  # whatever it is, nobody may send, and nobody may wait for it
                # The whole round is refused: it will be aborted, and others would only wait for the same error.
                self._refusal = _lost(str(error)) | {"usage": isinstance(error, UsageError)}
                log.warning("no share of %s is granted any more: %s", question.round_name, error)
                return self._refusal
            share = self._shares[question.share] = _Share(question.attempt)
            return share

    def _follow(self, channel: Channel, share: _Share) -> None:
        """Lets the owner send, and waits for its receipts or its end."""
        receipts: str | None = None
        try:
            channel.send({"answer": "send"}, MESSAGE_SECONDS)
            receipts = str(channel.receive(None)["receipts"])
        except (ChannelError, KeyError) as error:
            log.info("attempt %d ended without receipts: %s", share.attempt, error)
        with self._changed:
            share.receipts = receipts
            if receipts is None:
                share.lost = f"attempt {share.attempt}, which was sending, ended without finishing"
            self._changed.notify_all()

    def _keep_waiting(self, channel: Channel, question: _Question, share: _Share) -> None:
        """Another attempt owns the share: tells this one how that ends."""
        log.info("attempt %d waits: attempt %d sends share %d", question.attempt, share.attempt, question.share)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: share.decided or self._round != question.round_name, HEARTBEAT_SECONDS)
                is_over = self._round != question.round_name
            if share.receipts is not None:
                answer = {"answer": "done", "receipts": share.receipts}
            elif share.lost is not None or is_over:
                answer = _lost(share.lost or _OVER)
            else:
                answer = {"answer": "wait"}
            channel.send(answer, MESSAGE_SECONDS)
            if answer["answer"] != "wait":
                return


def _lost(why: str) -> dict[str, Any]:
    return {"answer": "lost", "why": why}


@dataclass(slots=True)
class Grant:
    """An attempt's answer: either the receipts of the attempt that was first, or the permission to send."""

    finished_receipts: str | None
    _channel: Channel

    def report(self, receipts: str) -> None:
        """Tells the driver what was sent."""
        try:
            self._channel.send({"receipts": receipts}, MESSAGE_SECONDS)
        except ChannelError as error:
            raise ShareLostError(f"what was sent could not be reported to the driver: {error}") from error


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
    try:
        channel = Channel.connect(address.host, address.port, address.key)
    except ChannelError as error:
        raise ShareLostError(f"the driver could not be asked for share {share} of the micro-batch: {error}") from error
    with channel:
        yield Grant(_answer(channel, question, share), channel)


def _answer(channel: Channel, question: dict[str, Any], share: int) -> str | None:
    """The receipts of another attempt, or None for the permission to send."""
    try:
        channel.send(question, MESSAGE_SECONDS)
        answer = channel.receive(ANSWER_SECONDS)
        while answer.get("answer") == "wait":
            answer = channel.receive(ANSWER_SECONDS)
    except ChannelError as error:
        raise ShareLostError(f"the driver did not answer for share {share} of the micro-batch: {error}") from error
    if answer.get("answer") in ("send", "done"):
        return answer.get("receipts")
    text = f"share {share} of the micro-batch cannot be sent: {answer.get('why')}"
    raise UsageError(text) if answer.get("usage") else ShareLostError(text)

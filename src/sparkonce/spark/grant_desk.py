"""Who may send: one listener on the driver, asked by every sending task before its first byte.

The broker recognises a repeated batch by its sequence numbers, not by its content. Two attempts of the same sending
task, a speculative copy or a stage that runs again, would therefore be mixed or dropped without a word. So each batch
has one sender, and if that one dies, the driver runs the micro-batch again under a new producer epoch, where Kafka
itself fences what is left of the old one. `grant_shares` and `grant_turns` are the two ways to have one sender.

The connection is authenticated with a key that travels in the task's closure. It stays open while the task sends: that
is how the driver notices the task's end. In both ways

    driver → task   {"answer": "wait"}, every few seconds while there is nothing to say
                    {"answer": "lost", "why": "…", "usage": false}, once nobody may send any more
    task → driver   {"failed": "…", "usage": false}, if it knows why it ends

Every connection has a thread of its own, from its first byte on: a peer that is silent holds up nobody else.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.spark.grant_channel import Channel, ChannelError
from sparkonce.spark.grant_round import MESSAGE_SECONDS, OVER, Announce, RefusedError, Round
from sparkonce.spark.grant_shares import serve_share
from sparkonce.spark.grant_task import GrantAddress
from sparkonce.spark.grant_turns import serve_turns

log = logging.getLogger(__name__)

BACKLOG = 512
_ACCEPT_PAUSE_SECONDS = 0.01
_JOIN_SECONDS = 5.0


class GrantDesk:
    """The driver's side. A round is one run of one micro-batch."""

    def __init__(self, host: str, bind_host: str, port: int = 0) -> None:
        key = secrets.token_bytes(32)
        family = socket.AF_INET6 if ":" in bind_host else socket.AF_INET
        try:
            self._server = socket.create_server((bind_host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise UsageError(f"the driver cannot listen on {bind_host}:{port} for its tasks: {error}") from error
        self.address = GrantAddress(host, int(self._server.getsockname()[1]), key)
        self._round = Round("", lambda _: None)
        self.close_round()
        self._closed = False
        self._serving: dict[threading.Thread, Channel] = {}
        self._serving_lock = threading.Lock()
        self._acceptor = threading.Thread(target=self._accept, name="sparkonce-grants", daemon=True)
        self._acceptor.start()

    def open_round(self, name: str, announce: Announce) -> None:
        """Starts over with nothing granted. `announce` is called with partitions before they may be sent to, by one
        thread at a time and never after the round.
        """
        self.close_round()
        self._round, self._is_open = Round(name, announce), True

    @contextmanager
    def round(self, name: str, announce: Announce = lambda _: None) -> Iterator[None]:
        """A round while the block runs its job."""
        self.open_round(name, announce)
        try:
            yield
        finally:
            self.close_round()

    def close_round(self) -> None:
        """Nobody is granted anything any more."""
        self._round.refuse(OVER)
        self._is_open = False

    def open_seconds(self) -> float:
        """How long ago the first permission of the latest round was given; 0 if none was."""
        began = self._round.first_grant_at
        return time.monotonic() - began if began else 0.0

    def granted_seconds(self) -> float:
        """How long ago the first permission of the round that is open was given; 0 if none is."""
        return self.open_seconds() if self._is_open else 0.0

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
            self._converse(channel, channel.receive(MESSAGE_SECONDS))
        except ChannelError as error:
            log.info("a question of a task was not served: %s", error)
        finally:
            channel.close()
            with self._serving_lock:
                self._serving.pop(threading.current_thread(), None)

    def _converse(self, channel: Channel, question: dict[str, Any]) -> None:
        round_ = self._round
        serve = serve_turns if "tasks" in question else serve_share
        try:
            round_.require_open(str(question.get("round")))
            serve(round_, channel, question)
        except RefusedError as refused:
            channel.send(refused.answer, MESSAGE_SECONDS)

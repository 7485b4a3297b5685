"""One connection to one broker: requests go out in order, answers come back in order, several may be under way.

Nothing here blocks and nothing waits: `Connection` moves what the socket takes and gives, and its owner
(`sparkonce.wire.connections`) decides when. A frame on the wire, both ways:

    length (int32) | header (correlation id first in answers) | body
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sparkonce.errors import Fault, InDoubtError, RetriableError, SparkonceError, UsageError
from sparkonce.wire.apis import Api, BrokerFeatures
from sparkonce.wire.kafka_python import response_header_bytes

Buffer: TypeAlias = bytes | bytearray | memoryview
Frame: TypeAlias = Sequence[Buffer]

_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# Far below the kernel's limit of 1,024 and more than a request of ours ever has at once.
_BUFFERS_PER_WRITE = 64


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a broker listens. Its id is for people; it is unknown (-1) for bootstrap servers."""

    host: str
    port: int
    broker_id: int = -1

    def __str__(self) -> str:
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return place if self.broker_id < 0 else f"broker {self.broker_id} at {place}"


class Pending:
    """A request that was handed to a connection, until its answer or its failure is known."""

    __slots__ = ("_body", "_error", "api", "connection", "expects_answer", "patience_ms", "sent", "version")

    def __init__(
        self, connection: Connection, api: Api, version: int, patience_ms: int, *, expects_answer: bool
    ) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.patience_ms = patience_ms
        self.expects_answer = expects_answer
        self.sent = False
        """Whether any byte of it may have reached the broker."""
        self._body: memoryview | None = None
        self._error: SparkonceError | None = None

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._body is not None or self._error is not None

    def body(self) -> memoryview:
        """The answer's body; raises what the connection failed with."""
        if self._error is not None:
            raise self._error
        if self._body is None:
            raise RuntimeError("the answer has not arrived")
        return self._body

    def succeed(self, body: memoryview) -> None:
        """Note the answer."""
        self._body = body

    def fail(self, error: SparkonceError) -> None:
        """Note that there will be no answer."""
        self._error = error


class Connection:
    """A socket with the requests under way on it. `features` is filled in after the introduction."""

    def __init__(self, address: Address, channel: socket.socket, client_id: str, max_response_bytes: int) -> None:
        self.address = address
        self.channel = channel
        self.client_id = client_id
        self.features = BrokerFeatures({}, {})
        self.expires_at = float("inf")
        self.progress_at = time.monotonic()
        self.closed = False
        self._is_tls = isinstance(channel, ssl.SSLSocket)
        self._max_response_bytes = max_response_bytes
        self._correlation_id = 0
        self._outgoing: deque[tuple[memoryview, Pending, bool]] = deque()
        self._in_flight: deque[tuple[int, Pending]] = deque()
        self._length = bytearray(4)
        self._target = memoryview(self._length)
        self._filled = 0
        self._reading_body = False

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet."""
        return len(self._in_flight)

    def oldest(self) -> Pending:
        """The request that will be answered next."""
        return self._in_flight[0][1]

    @property
    def wants_to_write(self) -> bool:
        """Whether bytes wait for the socket to take them."""
        return bool(self._outgoing)

    def submit(self, pending: Pending, encode: Callable[[int], Frame]) -> None:
        """Queue a request, behind those before it, and write as much as the socket takes at once."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        buffers = encode(self._correlation_id)
        last = len(buffers) - 1
        self._outgoing.extend((memoryview(b).cast("B"), pending, i == last) for i, b in enumerate(buffers))
        if pending.expects_answer:
            self._in_flight.append((self._correlation_id, pending))
        self.write()

    def write(self) -> None:
        """Write what the socket takes."""
        try:
            while self._outgoing:
                self._sent(self._write_some())
        except _WOULD_BLOCK:
            return
        except OSError as error:
            self.fail(f"writing failed: {error}")

    def _write_some(self) -> int:
        if self._is_tls:
            self._outgoing[0][1].sent = True
            return self.channel.send(self._outgoing[0][0])
        count = min(len(self._outgoing), _BUFFERS_PER_WRITE)
        return self.channel.sendmsg([self._outgoing[i][0] for i in range(count)])

    def _sent(self, count: int) -> None:
        self.progress_at = time.monotonic()
        while count:
            view, pending, is_last = self._outgoing[0]
            pending.sent = True
            if count < len(view):
                self._outgoing[0] = (view[count:], pending, is_last)
                return
            count -= len(view)
            self._outgoing.popleft()
            if is_last and not pending.expects_answer:
                pending.succeed(memoryview(b""))

    def read(self) -> None:
        """Read what has arrived, straight into its final place: one buffer per answer, never copied."""
        try:
            while not self.closed:
                count = self.channel.recv_into(self._target[self._filled :])
                if count == 0:
                    self.fail("the broker closed the connection")
                    return
                self.progress_at = time.monotonic()
                self._filled += count
                if self._filled == len(self._target):
                    self._piece_complete()
        except _WOULD_BLOCK:
            return
        except OSError as error:
            self.fail(f"reading failed: {error}", usage=_is_refused_certificate(error))

    def _piece_complete(self) -> None:
        self._filled = 0
        if self._reading_body:
            frame, self._target, self._reading_body = self._target, memoryview(self._length), False
            self._answer(frame)
            return
        (length,) = struct.unpack(">i", self._length)
        if not 4 <= length <= self._max_response_bytes:
            self.fail(
                f"it sent an answer of {length:,} bytes, which is no Kafka answer or above max_response_bytes; "
                "does the listener speak another security.protocol?",
                usage=True,
            )
            return
        self._target, self._reading_body = memoryview(bytearray(length)), True

    def _answer(self, frame: memoryview) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame)
        if not self._in_flight or self._in_flight[0][0] != correlation_id:
            self.fail("it answered a request that was not sent")
            return
        _, pending = self._in_flight.popleft()
        pending.succeed(frame[response_header_bytes(pending.api.message, pending.version) :])

    def fail(self, reason: str, *, name: str = "DISCONNECTED", usage: bool = False) -> None:
        """Close, and tell every request under way why it gets no answer."""
        self.close()
        # A request that expects no answer is only in the outgoing queue; most others are in both.
        orphans = [pending for _, pending in self._in_flight] + [entry[1] for entry in self._outgoing]
        self._in_flight.clear()
        self._outgoing.clear()
        for pending in orphans:
            if not pending.done:
                pending.fail(lost_answer(pending, reason, name=name, usage=usage))

    def close(self) -> None:
        """Close the socket; requests under way stay as they are."""
        self.closed = True
        self.channel.close()


def lost_answer(pending: Pending, reason: str, *, name: str, usage: bool = False) -> SparkonceError:
    """The error of a request whose answer will not come."""
    text = f"{pending.api.name} got no answer from {pending.connection.address}: {reason}"
    fault = Fault(pending.api.name, None, name, str(pending.connection.address))
    if pending.sent and not pending.api.repeatable:
        return InDoubtError(f"{text}. It may or may not have taken effect", fault=fault)
    return UsageError(text, fault=fault) if usage else RetriableError(text, fault=fault)


def unreadable_answer(pending: Pending, error: ValueError) -> SparkonceError:
    """The error of a request whose answer came but makes no sense: as good as none."""
    return lost_answer(pending, f"it cannot be read ({error})", name="UNREADABLE")


def _is_refused_certificate(error: OSError) -> bool:
    # With TLS 1.3 the broker refuses a client's certificate only after the handshake: as an alert to the first read.
    return isinstance(error, ssl.SSLError) and "alert" in str(error).lower()

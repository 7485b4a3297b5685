"""One connection between a sending attempt and the driver: authenticated both ways, whole messages, bounded waits.

Both sides know a key. Before anything else each proves it to the other, without showing it (HMAC-SHA-256):

    driver → attempt   32 random bytes d
    attempt → driver   32 random bytes a, then HMAC(key, "attempt" d a)
    driver → attempt   HMAC(key, "driver" d a)

Then messages in either direction: length (uint32), JSON. Knows nothing of what they mean.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from sparkonce.deadline import Deadline

HANDSHAKE_SECONDS = 10.0
_NONCE_BYTES = 32
_MESSAGE_BYTES_MAX = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")
# A host that vanished without a word is noticed after 10 + 3 · 5 seconds.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class ChannelError(Exception):
    """The connection cannot be used any more: closed, silent for too long, or not one of ours."""


class Channel:
    """An authenticated connection. `receive` and `send` raise only ChannelError."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):  # not on every system
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    @classmethod
    def connect(cls, host: str, port: int, key: bytes) -> Channel:
        """The attempt's side."""
        try:
            peer = socket.create_connection((host, port), HANDSHAKE_SECONDS)
        except OSError as error:
            raise ChannelError(f"{host}:{port} cannot be reached: {error}") from error
        channel = cls(peer)
        try:
            channel._prove_to_driver(key)
        except ChannelError:
            channel.close()
            raise
        return channel

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection and wakes whoever waits for it, in any thread."""
        with suppress(OSError):  # It may not be connected any more.
            self._peer.shutdown(socket.SHUT_RDWR)
        self._peer.close()

    def authenticate(self, key: bytes) -> None:
        """The driver's side."""
        until = Deadline.after(HANDSHAKE_SECONDS)
        ours = secrets.token_bytes(_NONCE_BYTES)
        self._write(ours, until)
        answer = self._read(2 * _NONCE_BYTES, until)
        theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(key, b"attempt", ours, theirs)):
            raise ChannelError("it does not know the key")
        self._write(_proof(key, b"driver", ours, theirs), until)

    def _prove_to_driver(self, key: bytes) -> None:
        until = Deadline.after(HANDSHAKE_SECONDS)
        theirs = self._read(_NONCE_BYTES, until)
        ours = secrets.token_bytes(_NONCE_BYTES)
        self._write(ours + _proof(key, b"attempt", theirs, ours), until)
        if not hmac.compare_digest(self._read(_NONCE_BYTES, until), _proof(key, b"driver", theirs, ours)):
            raise ChannelError("it does not know the key")

    def send(self, message: dict[str, Any], seconds: float) -> None:
        """Sends one message."""
        data = json.dumps(message).encode()
        self._write(_LENGTH.pack(len(data)) + data, Deadline.after(seconds))

    def receive(self, seconds: float | None) -> dict[str, Any]:
        """Waits for one message; None waits for as long as the connection lives."""
        until = None if seconds is None else Deadline.after(seconds)
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, until))
        if length > _MESSAGE_BYTES_MAX:
            raise ChannelError(f"a message of {length:,} bytes is not one of ours")
        try:
            message = json.loads(self._read(length, until))
        except ValueError as error:
            raise ChannelError(f"a message cannot be read: {error}") from error
        if not isinstance(message, dict):
            raise ChannelError("a message is not an object")
        return message

    def _write(self, data: bytes, until: Deadline) -> None:
        try:
            self._peer.settimeout(max(until.remaining_seconds, 0.001))
            self._peer.sendall(data)
        except OSError as error:
            raise ChannelError(_reason(error)) from error

    def _read(self, size: int, until: Deadline | None) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                self._peer.settimeout(None if until is None else max(until.remaining_seconds, 0.001))
                piece = self._peer.recv(size - len(data))
            except OSError as error:
                raise ChannelError(_reason(error)) from error
            if not piece:
                raise ChannelError("the connection was closed")
            data += piece
        return bytes(data)


def _proof(key: bytes, who: bytes, driver: bytes, attempt: bytes) -> bytes:
    return hmac.new(key, who + driver + attempt, hashlib.sha256).digest()


def _reason(error: OSError) -> str:
    return "it was silent for too long" if isinstance(error, TimeoutError) else str(error)

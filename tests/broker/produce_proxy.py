"""A proxy between a sender and its broker that cuts connections by script: before a request got through, or after."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from enum import Enum, auto

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.send import sender
from sparkonce.wire import Address, Client, send_produce

PRODUCE_KEY = 0


class Fate(Enum):
    """What becomes of a Produce request."""

    PASS = auto()
    LOST_REQUEST = auto()
    """The connection breaks before the broker has it."""
    LOST_ANSWER = auto()
    """The broker has written it; then the connection breaks."""


class ProduceProxy:
    """Forwards whole requests and answers, one at a time, as a broker itself handles those of one connection."""

    def __init__(self, host: str, port: int, fate: Callable[[int], Fate]) -> None:
        self._target = (host, port)
        self._fate = fate
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.fates: list[Fate] = []
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._server.accept()
                self._open.append(peer)
                self._threads.append(threading.Thread(target=self._forward, args=(peer,), daemon=True))
                self._threads[-1].start()

    def _forward(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer, socket.create_connection(self._target) as broker:
            while True:
                request = _frame(peer)
                is_produce = struct.unpack_from(">h", request, 4)[0] == PRODUCE_KEY
                fate = self._fate(len(self.fates)) if is_produce else Fate.PASS
                if is_produce:
                    self.fates.append(fate)
                if fate is Fate.LOST_REQUEST:
                    return
                broker.sendall(request)
                answer = _frame(broker)
                if fate is Fate.LOST_ANSWER:
                    return
                peer.sendall(answer)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for peer in self._open:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)


def _frame(source: socket.socket) -> bytes:
    size = _exactly(source, 4)
    return size + _exactly(source, struct.unpack(">i", size)[0])


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return bytes(data)


@contextlib.contextmanager
def proxied(broker: DevBroker, monkeypatch: pytest.MonkeyPatch, fate: Callable[[int], Fate]) -> Iterator[ProduceProxy]:
    """Every record batch that a Sender sends goes through the proxy; all else goes to the broker directly."""
    host, _, port = broker.bootstrap_servers.partition(":")
    proxy = ProduceProxy(host, int(port), fate)

    def detour(client: Client, address: Address, *rest: object) -> object:
        return send_produce(client, Address("127.0.0.1", proxy.port, address.broker_id), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(sender, "send_produce", detour)
    try:
        yield proxy
    finally:
        proxy.close()

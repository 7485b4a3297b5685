"""A broker that answers by script, on a real socket of this machine: for what a real broker will not do on demand."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from sparkonce.wire.kafka_python import build_message

Answer = Callable[["FakeBroker", int, int, bytes], bytes | None]
"""From (broker, api key, api version, request body) to the answer's body; None closes the connection."""

ALL_VERSIONS = [(key, 0, 99) for key in range(70)]


class FakeBroker:
    """Serves any number of connections; `requests` lists the api keys that arrived."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.requests: list[int] = []
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._server.accept()
                self.connections += 1
                self._open.append(peer)
                self._threads.append(threading.Thread(target=self._serve, args=(peer,), daemon=True))
                self._threads[-1].start()

    def _serve(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), peer:
            while True:
                (size,) = struct.unpack(">i", _exactly(peer, 4))
                frame = _exactly(peer, size)
                key, version, correlation_id = struct.unpack_from(">hhi", frame)
                self.requests.append(key)
                body = self._answer(self, key, version, frame)
                if body is None:
                    return
                header = struct.pack(">i", correlation_id) + (b"" if key == 18 else b"\x00")
                peer.sendall(struct.pack(">i", len(header) + len(body)) + header + body)

    def disconnect_all(self) -> None:
        for peer in self._open:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.disconnect_all()
        for thread in self._threads:
            thread.join(5)


@contextlib.contextmanager
def fake_broker(answer: Answer) -> Iterator[FakeBroker]:
    broker = FakeBroker(answer)
    try:
        yield broker
    finally:
        broker.close()


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return data


def encode(message_class: Any, version: int, body: dict[str, Any]) -> bytes:
    return bytes(build_message(message_class, version, body).encode(version=version))


def api_versions(versions: list[tuple[int, int, int]] | None = None) -> bytes:
    offered = ALL_VERSIONS if versions is None else versions
    keys = [{"api_key": k, "min_version": low, "max_version": high} for k, low, high in offered]
    return encode(ApiVersionsResponse, 3, {"error_code": 0, "api_keys": keys})


def metadata(broker: FakeBroker, version: int, *, port: int | None = None) -> bytes:
    node = {"node_id": 1, "host": "127.0.0.1", "port": port or broker.port, "rack": None}
    return encode(
        MetadataResponse, version, {"brokers": [node], "cluster_id": "fake", "controller_id": 1, "topics": []}
    )

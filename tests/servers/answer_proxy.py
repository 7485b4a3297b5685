"""A proxy before a database server: it lets one statement through, and then breaks the connection before the answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

CHUNK = 1 << 16


class AnswerProxy:
    """Forwards bytes both ways. When it is armed, the next request with the given words is answered with silence."""

    def __init__(self, port: int, words: bytes) -> None:
        self._target, self._words = port, words
        self.armed, self.lost = False, 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [peer, server]
                self._start(self._requests, peer, server)
                self._start(self._answers, peer, server)

    def _start(self, target: object, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _requests(self, peer: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := peer.recv(CHUNK):
                if self.armed and self._words in data:
                    self.armed, self.lost = False, self.lost + 1
                    # The client's connection breaks first, so that it cannot see the answer.
                    peer.shutdown(socket.SHUT_RDWR)
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _answers(self, peer: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(CHUNK):
                peer.sendall(data)
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for peer in (self._server, *self._open):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for peer in (self._server, *self._open):
            peer.close()


@contextlib.contextmanager
def losing_answer(port: int, words: bytes) -> Iterator[AnswerProxy]:
    """While the block runs."""
    proxy = AnswerProxy(port, words)
    try:
        yield proxy
    finally:
        proxy.close()

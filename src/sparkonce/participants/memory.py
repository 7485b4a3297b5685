"""A store in memory, served to other processes: for tests, and as the shortest example of a participant."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import pyarrow as pa

from sparkonce.commit import Branch, BranchWriter, Handle, Participant, for_each, leftovers
from sparkonce.errors import RetriableError


class MemoryStore:
    """The store itself: lives in one process, and is asked by all others over a local socket. Close it."""

    def __init__(self) -> None:
        self.committed: dict[str, list[pa.Table]] = {}
        self.prepared: dict[str, tuple[str, pa.Table]] = {}
        self.key = secrets.token_bytes(16)
        self._lock = threading.Lock()
        self._listener = Listener(family="AF_UNIX", authkey=self.key)
        self.address = str(self._listener.address)
        self._thread = threading.Thread(target=self._serve, name="memory-store", daemon=True)
        self._thread.start()

    def participant(self, table: str) -> MemoryParticipant:
        """A sink for one of its tables."""
        return MemoryParticipant(self.address, self.key, table)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What is visible."""
        with self._lock:
            return [row for piece in self.committed.get(table, []) for row in piece.to_pylist()]

    def close(self) -> None:
        """Ends the listener."""
        # Closing alone does not wake the thread that accepts; a call that is not one does.
        with suppress(OSError, EOFError):
            _ask(self.address, self.key, "end")
        self._thread.join(5)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            with suppress(Exception), self._listener.accept() as peer:  # a peer that was killed holds up nobody
                if not self._answer(peer):
                    return

    def _answer(self, peer: Connection) -> bool:
        step, *arguments = peer.recv()
        with self._lock:
            peer.send(getattr(self, f"_{step}")(*arguments))
        return bool(step != "end")

    def _end(self) -> None:
        pass

    def _prepare(self, name: str, table: str, rows: pa.Table) -> None:
        self.prepared[name] = (table, rows)

    def _commit(self, name: str) -> None:
        if name in self.prepared:
            table, rows = self.prepared.pop(name)
            self.committed.setdefault(table, []).append(rows)

    def _abort(self, name: str) -> None:
        self.prepared.pop(name, None)

    def _names(self) -> list[str]:
        return list(self.prepared)


@dataclass(frozen=True)
class MemoryParticipant(Participant):
    """One table of a `MemoryStore`."""

    address: str
    key: bytes = field(repr=False)
    table: str

    @property
    def name(self) -> str:
        """As `Participant` says."""
        return f"memory {self.table}"

    def begin(self, branch: Branch, schema: pa.Schema) -> BranchWriter:
        """As `Participant` says."""
        return _MemoryWriter(self, branch, schema)

    def commit(self, handles: Sequence[Handle]) -> None:
        """As `Participant` says."""
        for_each(handles, lambda handle: self.ask("commit", handle.branch.name))

    def abort(self, handles: Sequence[Handle]) -> None:
        """As `Participant` says."""
        for_each(handles, lambda handle: self.ask("abort", handle.branch.name))

    def in_doubt(self, query: str) -> list[Handle]:
        """As `Participant` says."""
        return leftovers(self.ask("names"), query)

    def ask(self, step: str, *arguments: Any) -> Any:
        """One question to the store."""
        try:
            return _ask(self.address, self.key, step, *arguments)
        except (OSError, EOFError) as error:
            raise RetriableError(f"the memory store at {self.address} does not answer: {error}") from error


class _MemoryWriter(BranchWriter):
    def __init__(self, sink: MemoryParticipant, branch: Branch, schema: pa.Schema) -> None:
        self._sink, self._branch, self._schema = sink, branch, schema
        self._arrow_batches: list[pa.RecordBatch] = []

    def write(self, arrow_batch: pa.RecordBatch) -> None:
        self._arrow_batches.append(arrow_batch)

    def pre_commit(self) -> None:
        rows = pa.Table.from_batches(self._arrow_batches, self._schema)
        self._sink.ask("prepare", self._branch.name, self._sink.table, rows)

    def discard(self) -> None:
        self._arrow_batches = []


def _ask(address: str, key: bytes, *question: Any) -> Any:
    with Client(address, authkey=key) as store:
        store.send(question)
        return store.recv()

"""MariaDB by XA: a task inserts its rows and ends with XA PREPARE.

While the connection that prepared a branch is open, no other one may finish it, and is told that it does not exist
(tried on 10.11). So the writer disconnects, and "does not exist" is believed only if XA RECOVER does not list it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from sparkonce.commit import Branch, BranchWriter, Handle, for_each, leftovers
from sparkonce.deadline import Deadline, wait_until
from sparkonce.errors import AbortableError, RetriableError
from sparkonce.participants.mariadb.connection import (
    XAER_NOTA,
    close_quietly,
    connect,
    connected,
    execute,
    number_of,
    set_lock_timeout,
    translated,
)
from sparkonce.participants.mariadb.participant import MariaDBTable, insert_rows, require_version

_DETACH_MS = 2_000


@dataclass(frozen=True, kw_only=True)
class MariaDBPrepared(MariaDBTable):
    """Two-phase commit by XA."""

    @property
    def kept_together(self) -> tuple[str, ...]:
        """As `Participant` says: two prepared branches cannot hold the same row."""
        return self.keys

    def preflight(self, branches: int) -> None:  # noqa: ARG002  Servers do not limit them.
        """As `Participant` says: the version, and the permission to list branches."""
        with connected(self.url, "reading the version") as connection:
            require_version(str(execute(connection, "SELECT VERSION()")[0][0]))
            prepared_names(connection)

    def begin(self, branch: Branch, schema: pa.Schema) -> BranchWriter:  # noqa: ARG002  Every batch names its columns.
        """As `Participant` says."""
        return _XaWriter(self, branch)

    def commit(self, handles: Sequence[Handle]) -> None:
        """As `Participant` says."""
        self._finish("COMMIT", handles)

    def abort(self, handles: Sequence[Handle]) -> None:
        """As `Participant` says."""
        self._finish("ROLLBACK", handles)

    def in_doubt(self, query: str) -> list[Handle]:
        """As `Participant` says; those of the query's other tables on this server too."""
        with connected(self.url, "listing prepared branches") as connection:
            return leftovers(prepared_names(connection), query)

    def _finish(self, word: str, handles: Sequence[Handle]) -> None:
        with connected(self.url, f"XA {word}") as connection:
            for_each(handles, lambda handle: _finish_one(connection, word, handle.branch))


def prepared_names(connection: pymysql.Connection) -> list[str]:
    """All prepared branches of the server, ours or not, as names of branches would be."""
    names = []
    for _, global_bytes, _, data in execute(connection, "XA RECOVER"):
        raw = data if isinstance(data, bytes) else str(data).encode()
        names.append(f"{_text(raw[:global_bytes])}/{_text(raw[global_bytes:])}")
    return names


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _xid(branch: Branch) -> str:
    """Digits, letters and dots only: nothing to escape."""
    return f"'{branch.global_id}','{branch.qualifier}'"


def _finish_one(connection: pymysql.Connection, word: str, branch: Branch) -> None:
    # The connection of a task that has just ended may live on for a moment in the server.
    if not wait_until(lambda: _is_finished(connection, word, branch), Deadline.after_ms(_DETACH_MS)):
        raise RetriableError(f"MariaDB still ties {branch.name} to the connection that prepared it")


def _is_finished(connection: pymysql.Connection, word: str, branch: Branch) -> bool:
    """Whether the branch is finished now, or was before; False if it is there and cannot be had."""
    try:
        execute(connection, f"XA {word} {_xid(branch)}")
    except pymysql.err.MySQLError as error:
        if number_of(error) != XAER_NOTA:
            raise
        return branch.name not in prepared_names(connection)
    return True


class _XaWriter(BranchWriter):
    def __init__(self, sink: MariaDBPrepared, branch: Branch) -> None:
        self._sink, self._xid = sink, _xid(branch)
        with translated(f"beginning to load {sink.table}", AbortableError):
            self._connection = connect(sink.url)
            try:
                set_lock_timeout(self._connection, sink.lock_timeout_ms)
                execute(self._connection, f"XA START {self._xid}")
            except BaseException:
                close_quietly(self._connection)
                raise

    def write(self, arrow_batch: pa.RecordBatch) -> None:
        with translated(f"loading {self._sink.table}", AbortableError):
            insert_rows(self._connection, self._sink.table, arrow_batch, self._sink.keys)

    def pre_commit(self) -> None:
        with translated(f"preparing a branch in {self._sink.table}", AbortableError):
            execute(self._connection, f"XA END {self._xid}")
            execute(self._connection, f"XA PREPARE {self._xid}")
        close_quietly(self._connection)

    def discard(self) -> None:
        close_quietly(self._connection)

"""MariaDB without XA: rows wait in tables of their own, and one local transaction moves those of a micro-batch into the
target and notes the micro-batch beside them. Whoever repeats it finds the note.

MariaDB commits whatever is open before it makes or drops a table. So a staged table is made before its rows are
inserted, and dropped after they were moved; the note tells one that was only left from one that must be moved.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from sparkonce.commit import Branch, BranchWriter, Handle, leftovers, sink_digest
from sparkonce.errors import AbortableError, InDoubtError
from sparkonce.participants.mariadb.connection import (
    LOCK_WAIT_TIMEOUT,
    NO_SUCH_TABLE,
    close_quietly,
    connect,
    connected,
    execute,
    number_of,
    set_lock_timeout,
    translated,
)
from sparkonce.participants.mariadb.participant import MariaDBTable, insert_rows
from sparkonce.participants.mariadb.rows import merge_statement
from sparkonce.participants.mariadb.table import beside, located, quoted
from sparkonce.participants.staging import BATCHES, ROW_NUMBER, numbered, stage_name, stage_prefix

log = logging.getLogger(__name__)

_DROP_TIMEOUT_MS = 1_000
_STAGED = """
    SELECT table_comment FROM information_schema.tables
    WHERE table_schema = %s AND left(table_name, %s) = %s"""


@dataclass(frozen=True, kw_only=True)
class MariaDBStaged(MariaDBTable):
    """One local transaction a micro-batch, from staged tables. Micro-batches appear as a whole."""

    @property
    def batches(self) -> str:
        """The table of micro-batches, quoted."""
        return quoted(beside(self.table, BATCHES))

    def stage(self, branch: Branch) -> str:
        """The table in which a branch's rows wait."""
        return beside(self.table, stage_name(branch))

    def preflight(self, branches: int) -> None:  # noqa: ARG002  Any number of tables will do.
        """Makes the table of micro-batches."""
        with connected(self.url, f"creating {BATCHES}") as connection:
            execute(
                connection,
                f"CREATE TABLE IF NOT EXISTS {self.batches} (query varchar(12), sink varchar(8), "
                f"batch_id bigint NOT NULL, epoch bigint NOT NULL, PRIMARY KEY (query, sink)) ENGINE = InnoDB",
            )

    def begin(self, branch: Branch, schema: pa.Schema) -> BranchWriter:
        """As `Participant` says."""
        return _StagedWriter(self, branch, schema.names)

    def commit(self, handles: Sequence[Handle]) -> None:
        """Moves all rows and notes the micro-batch, in one transaction; once. Then drops the staged tables."""
        if not handles:
            return
        branch = handles[0].branch
        with connected(self.url, f"moving batch {branch.batch_id} into {self.table}") as connection:
            set_lock_timeout(connection, self.lock_timeout_ms)
            try:
                connection.begin()
                if self._note(connection, branch):
                    for handle in handles:
                        self._move(connection, handle.branch)
                connection.commit()
            except pymysql.err.ProgrammingError as error:
                if number_of(error) != NO_SUCH_TABLE:
                    raise
                raise InDoubtError(
                    f"batch {branch.batch_id} is decided and not in {self.table} yet, but its staged rows are gone: "
                    f"{error.args[-1]}. Somebody removed them; nothing was changed"
                ) from error
            self._drop(connection, handles)

    def abort(self, handles: Sequence[Handle]) -> None:
        """As `Participant` says."""
        with connected(self.url, "dropping staged tables") as connection:
            set_lock_timeout(connection, _DROP_TIMEOUT_MS)
            for handle in handles:
                try:
                    self._drop(connection, [handle])
                except pymysql.err.OperationalError as error:
                    if number_of(error) != LOCK_WAIT_TIMEOUT:
                        raise
                    # Its run is over, so waiting for its task would gain nothing.
                    log.warning("%s is still being written; the next sweep drops it", handle.branch.name)

    def in_doubt(self, query: str) -> list[Handle]:
        """As `Participant` says."""
        prefix = stage_prefix(query)
        with connected(self.url, "listing staged tables") as connection:
            database, _ = located(connection, self.table)
            found = execute(connection, _STAGED, (database, len(prefix), prefix))
        own = sink_digest(self.name)
        return [
            handle for handle in leftovers((comment or "" for (comment,) in found), query) if handle.branch.sink == own
        ]

    def _note(self, connection: pymysql.Connection, branch: Branch) -> bool:
        """Whether the micro-batch was not in the table before. Its row is locked: a second driver waits here."""
        key = (branch.query, branch.sink)
        execute(connection, f"INSERT IGNORE INTO {self.batches} VALUES (%s, %s, -1, 0)", key)  # noqa: S608
        where = f"{self.batches} WHERE query = %s AND sink = %s"
        last = int(execute(connection, f"SELECT batch_id FROM {where} FOR UPDATE", key)[0][0])  # noqa: S608
        if last >= branch.batch_id:
            return False
        change = f"UPDATE {self.batches} SET batch_id = %s, epoch = %s WHERE query = %s AND sink = %s"  # noqa: S608
        execute(connection, change, (branch.batch_id, branch.epoch, *key))
        return True

    def _move(self, connection: pymysql.Connection, branch: Branch) -> None:
        stage = self.stage(branch)
        columns = [str(row[0]) for row in execute(connection, f"SHOW COLUMNS FROM {quoted(stage)}")]
        columns.remove(ROW_NUMBER)
        execute(connection, merge_statement(stage, self.table, columns, self.keys, ROW_NUMBER))

    def _drop(self, connection: pymysql.Connection, handles: Sequence[Handle]) -> None:
        for handle in handles:
            execute(connection, f"DROP TABLE IF EXISTS {quoted(self.stage(handle.branch))}")


class _StagedWriter(BranchWriter):
    def __init__(self, sink: MariaDBStaged, branch: Branch, columns: Sequence[str]) -> None:
        self._sink, self._stage = sink, sink.stage(branch)
        self._rows = 0
        names = ", ".join(quoted(column) for column in columns)
        with translated(f"beginning to stage rows for {sink.table}", AbortableError):
            self._connection = connect(sink.url)
            try:
                set_lock_timeout(self._connection, sink.lock_timeout_ms)
                execute(
                    self._connection,
                    f"CREATE TABLE {quoted(self._stage)} ({ROW_NUMBER} bigint PRIMARY KEY) ENGINE = InnoDB "  # noqa: S608
                    f"COMMENT = '{branch.name}' AS SELECT {names}, 0 AS {ROW_NUMBER} FROM {quoted(sink.table)} LIMIT 0",
                )
                self._connection.begin()
            except BaseException:
                close_quietly(self._connection)
                raise

    def write(self, arrow_batch: pa.RecordBatch) -> None:
        with translated(f"staging rows for {self._sink.table}", AbortableError):
            try:
                insert_rows(self._connection, self._stage, numbered(arrow_batch, self._rows), ())
            except pymysql.err.ProgrammingError as error:
                if number_of(error) != NO_SUCH_TABLE:
                    raise
                raise AbortableError(f"{self._stage} was dropped while rows were staged: its run is over") from error
        self._rows += arrow_batch.num_rows

    def pre_commit(self) -> None:
        with translated(f"staging rows for {self._sink.table}", AbortableError):
            self._connection.commit()
        close_quietly(self._connection)

    def discard(self) -> None:
        close_quietly(self._connection)

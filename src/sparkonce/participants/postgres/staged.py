"""PostgreSQL without prepared transactions: rows wait in tables of their own, and one local transaction moves those of
a micro-batch into the target and notes the micro-batch beside them. Whoever repeats it finds the note.

The staged tables are logged ones: an unlogged table is empty after a crash of the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import sql

from sparkonce.commit import Branch, BranchWriter, Handle, leftovers, sink_digest
from sparkonce.errors import InDoubtError
from sparkonce.participants.postgres.connection import Connection, connected
from sparkonce.participants.postgres.loading import Loading
from sparkonce.participants.postgres.participant import PostgresTable
from sparkonce.participants.postgres.rows import merge_statement
from sparkonce.participants.postgres.table import beside, identifier, schema_of
from sparkonce.participants.staging import BATCHES, ROW_NUMBER, stage_name, stage_prefix

_STAGED = """
    SELECT obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = coalesce(%s, current_schema()) AND c.relkind = 'r' AND starts_with(c.relname, %s)"""
_NOTE = """
    INSERT INTO {batches} AS b (query, sink, batch_id, epoch) VALUES (%s, %s, %s, %s)
    ON CONFLICT (query, sink) DO UPDATE SET batch_id = EXCLUDED.batch_id, epoch = EXCLUDED.epoch
    WHERE b.batch_id < EXCLUDED.batch_id"""


@dataclass(frozen=True, kw_only=True)
class PostgresStaged(PostgresTable):
    """One local transaction a micro-batch, from staged tables. Micro-batches appear as a whole."""

    @property
    def makes_tables(self) -> bool:
        """As `PostgresTable` says."""
        return True

    def preflight(self, branches: int) -> None:  # noqa: ARG002  Any number of tables will do.
        """Makes the table of micro-batches."""
        create = sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (query text, sink text, batch_id int8 NOT NULL, epoch int8 NOT NULL, "
            "PRIMARY KEY (query, sink))"
        ).format(beside(self.table, BATCHES))
        with connected(self.dsn, f"creating {BATCHES}") as connection:
            try:
                connection.execute(create)
            except psycopg.errors.UniqueViolation:
                connection.execute(create)  # Another query was creating it at the same moment.

    def begin(self, branch: Branch, schema: pa.Schema) -> BranchWriter:
        """As `Participant` says."""
        return _StagedWriter(self, branch, schema.names)

    def commit(self, handles: Sequence[Handle]) -> None:
        """Moves all rows and notes the micro-batch, in one transaction; once."""
        if not handles:
            return
        branch = handles[0].branch
        with connected(self.dsn, f"moving batch {branch.batch_id} into {self.table}") as connection:
            try:
                with connection.transaction():
                    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(self.lock_timeout_ms))
                    if self._note(connection, branch):
                        for handle in handles:
                            self._move(connection, handle.branch)
                    self._drop(connection, handles)
            except psycopg.errors.UndefinedTable as error:
                raise InDoubtError(
                    f"batch {branch.batch_id} is decided and not in {self.table} yet, but its staged rows are gone: "
                    f"{error.diag.message_primary}. Somebody removed them; nothing was changed"
                ) from error

    def abort(self, handles: Sequence[Handle]) -> None:
        """As `Participant` says."""
        with connected(self.dsn, "dropping staged tables") as connection:
            self._drop(connection, handles)

    def in_doubt(self, query: str) -> list[Handle]:
        """As `Participant` says."""
        with connected(self.dsn, "listing staged tables") as connection:
            found = connection.execute(_STAGED, (schema_of(self.table), stage_prefix(query))).fetchall()
        own = sink_digest(self.name)
        return [
            handle for handle in leftovers((comment or "" for (comment,) in found), query) if handle.branch.sink == own
        ]

    def _note(self, connection: Connection, branch: Branch) -> bool:
        """Whether the micro-batch was not in the table before. Its row is locked: a second driver waits here."""
        note = sql.SQL(_NOTE).format(batches=beside(self.table, BATCHES))
        values = (branch.query, branch.sink, branch.batch_id, branch.epoch)
        return connection.execute(note, values).rowcount == 1

    def _move(self, connection: Connection, branch: Branch) -> None:
        stage = beside(self.table, stage_name(branch))
        listed = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(stage)).description or []
        columns = [column.name for column in listed if column.name != ROW_NUMBER]
        connection.execute(merge_statement(stage, identifier(self.table), columns, self.keys))

    def _drop(self, connection: Connection, handles: Sequence[Handle]) -> None:
        for handle in handles:
            stage = beside(self.table, stage_name(handle.branch))
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(stage))


class _StagedWriter(BranchWriter):
    def __init__(self, sink: PostgresStaged, branch: Branch, columns: Sequence[str]) -> None:
        self._loading = Loading(sink, branch, columns, stage="")

    def write(self, arrow_batch: pa.RecordBatch) -> None:
        self._loading.write(arrow_batch)

    def pre_commit(self) -> None:
        self._loading.end(sql.SQL("COMMIT"))

    def discard(self) -> None:
        self._loading.discard()

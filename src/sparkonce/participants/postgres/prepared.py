"""PostgreSQL by prepared transactions: a task loads its rows with COPY and ends with PREPARE TRANSACTION.

An upsert needs its rows in a table first. Not a temporary one, which PREPARE TRANSACTION refuses, but an unlogged one,
made and dropped in the same transaction: nobody ever sees it, and it is gone whatever happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import sql

from sparkonce.commit import Branch, BranchWriter, Handle, for_each, leftovers, name_prefix
from sparkonce.errors import UsageError
from sparkonce.participants.postgres.connection import UNDEFINED_OBJECT, Connection, connected
from sparkonce.participants.postgres.loading import Loading
from sparkonce.participants.postgres.participant import PostgresTable


@dataclass(frozen=True, kw_only=True)
class PostgresPrepared(PostgresTable):
    """Two-phase commit. The server must allow prepared transactions."""

    @property
    def kept_together(self) -> tuple[str, ...]:
        """As `Participant` says: two prepared branches cannot hold the same row."""
        return self.keys

    def preflight(self, branches: int) -> None:
        """As `Participant` says."""
        with connected(self.dsn, "reading max_prepared_transactions") as connection:
            found = connection.execute("SELECT current_setting('max_prepared_transactions')::int").fetchone()
        allowed = int(found[0]) if found else 0
        # Twice: what a lost run prepared may not be rolled back yet when the next one prepares.
        wanted = max(64, 2 * branches)
        if allowed < branches:
            problem = "are switched off" if allowed == 0 else f"are limited to {allowed}, {branches} are needed"
            raise UsageError(
                f"prepared transactions {problem} on this PostgreSQL server. Put the line\n"
                f"max_prepared_transactions = {wanted}\n"
                f"into its postgresql.conf, or run ALTER SYSTEM SET max_prepared_transactions = {wanted}, and restart "
                f"it: a reload is not enough. Or use mode='idempotent', which needs none"
            )

    def begin(self, branch: Branch, schema: pa.Schema) -> BranchWriter:
        """As `Participant` says."""
        return _PreparedWriter(self, branch, schema.names)

    def commit(self, handles: Sequence[Handle]) -> None:
        """As `Participant` says."""
        self._finish("COMMIT", handles)

    def abort(self, handles: Sequence[Handle]) -> None:
        """As `Participant` says."""
        self._finish("ROLLBACK", handles)

    def in_doubt(self, query: str) -> list[Handle]:
        """As `Participant` says; those of the query's other tables in this database too."""
        with connected(self.dsn, "listing prepared transactions") as connection:
            found = connection.execute(
                "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s)",
                (name_prefix(query),),
            ).fetchall()
        return leftovers((gid for (gid,) in found), query)

    def _finish(self, word: str, handles: Sequence[Handle]) -> None:
        with connected(self.dsn, f"{word} PREPARED") as connection:
            for_each(handles, lambda handle: _finish_one(connection, word, handle.branch.name))


def _finish_one(connection: Connection, word: str, name: str) -> None:
    try:
        connection.execute(sql.SQL("{} PREPARED {}").format(sql.SQL(word), sql.Literal(name)))
    except psycopg.errors.UndefinedObject as error:
        # It was finished before, perhaps by the request whose answer was lost. Which way is said by the decision.
        if error.sqlstate != UNDEFINED_OBJECT:
            raise


class _PreparedWriter(BranchWriter):
    def __init__(self, sink: PostgresPrepared, branch: Branch, columns: Sequence[str]) -> None:
        self._name = branch.name
        self._loading = Loading(sink, branch, columns, stage="UNLOGGED" if sink.keys else None)

    def write(self, arrow_batch: pa.RecordBatch) -> None:
        self._loading.write(arrow_batch)

    def pre_commit(self) -> None:
        self._loading.merge_stage()
        self._loading.end(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(self._name)))

    def discard(self) -> None:
        self._loading.discard()

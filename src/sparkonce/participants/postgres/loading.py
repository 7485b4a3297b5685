"""One transaction of a task that loads rows with COPY: into the target itself, or into a table beside it first."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress

import psycopg
import pyarrow as pa
from psycopg import sql

from sparkonce.commit import Branch
from sparkonce.errors import AbortableError
from sparkonce.participants.postgres.connection import close_quietly, connect, translated
from sparkonce.participants.postgres.participant import PostgresTable
from sparkonce.participants.postgres.rows import copy_statement, copy_text, merge_statement, stage_statement
from sparkonce.participants.postgres.table import beside, identifier
from sparkonce.participants.staging import ROW_NUMBER, numbered, stage_name


class Loading:
    """An open transaction with rows on their way. `stage` is the kind of table that they wait in, None for none."""

    def __init__(self, sink: PostgresTable, branch: Branch, columns: Sequence[str], stage: str | None) -> None:
        self._sink, self._columns = sink, list(columns)
        self._target = identifier(sink.table)
        self._stage = beside(sink.table, stage_name(branch)) if stage is not None else None
        self._rows = 0
        self._copying = ExitStack()
        with translated(f"beginning to load {sink.table}", AbortableError):
            self._connection = connect(sink.dsn)
            try:
                self._begin(branch, stage or "")
            except BaseException:
                close_quietly(self._connection)
                raise

    def write(self, arrow_batch: pa.RecordBatch) -> None:
        """Sends rows."""
        rows = numbered(arrow_batch, self._rows) if self._stage else arrow_batch
        text = copy_text(rows)
        with translated(f"loading {self._sink.table}", AbortableError):
            self._copy.write(text)
        self._rows += arrow_batch.num_rows

    def merge_stage(self) -> None:
        """Ends the COPY and moves the rows on, if they wait in a table, which is then gone."""
        with translated(f"loading {self._sink.table}", AbortableError):
            self._copying.close()
            if self._stage is not None:
                self._connection.execute(merge_statement(self._stage, self._target, self._columns, self._sink.keys))
                self._connection.execute(sql.SQL("DROP TABLE {}").format(self._stage))

    def end(self, statement: sql.SQL | sql.Composed) -> None:
        """Ends the COPY, if it goes on, and the transaction in the given way; then disconnects."""
        with translated(f"ending the load of {self._sink.table}", AbortableError):
            self._copying.close()
            self._connection.execute(statement)
        close_quietly(self._connection)

    def discard(self) -> None:
        """The server rolls back what is open."""
        close_quietly(self._connection)
        with suppress(psycopg.Error):
            self._copying.close()

    def _begin(self, branch: Branch, stage_kind: str) -> None:
        self._connection.execute("BEGIN")
        self._connection.execute("SET LOCAL TimeZone = 'UTC'")
        self._connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(self._sink.lock_timeout_ms))
        into, columns = self._target, self._columns
        if self._stage is not None:
            into, columns = self._stage, [*columns, ROW_NUMBER]
            self._connection.execute(stage_statement(self._stage, self._target, self._columns, stage_kind))
            comment = sql.SQL("COMMENT ON TABLE {} IS {}").format(self._stage, sql.Literal(branch.name))
            self._connection.execute(comment)
        self._copy = self._copying.enter_context(self._connection.cursor().copy(copy_statement(into, columns)))

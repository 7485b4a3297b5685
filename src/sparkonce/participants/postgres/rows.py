"""Arrow batches → the text that COPY reads, by columns; and the statements that load it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv
from psycopg import sql

from sparkonce.errors import UsageError
from sparkonce.participants.columns import Kind, kind_of
from sparkonce.participants.staging import ROW_NUMBER
from sparkonce.participants.text import enclosed, hexadecimal, plain

# Null is nothing at all, an empty string is "": exactly what COPY's csv format expects.
_CSV = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed", batch_size=16_384)


def copy_text(arrow_batch: pa.RecordBatch) -> memoryview:
    """Rows as csv."""
    try:
        columns = [_copy_column(column) for column in arrow_batch.columns]
    except pa.ArrowInvalid as error:
        raise UsageError(f"PostgreSQL keeps microseconds, the rows have more: {error}") from error
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(pa.RecordBatch.from_arrays(columns, names=arrow_batch.schema.names), sink, _CSV)
    return memoryview(sink.getvalue())


def copy_statement(target: sql.Identifier, columns: Sequence[str]) -> sql.Composed:
    """COPY into the named columns."""
    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(target, _names(columns))


def stage_statement(stage: sql.Identifier, target: sql.Identifier, columns: Sequence[str], kind: str) -> sql.Composed:
    """A table with the types of the target's columns and none of its constraints."""
    return sql.SQL("CREATE {} TABLE {} AS SELECT {}, 0::int8 AS {} FROM {} WITH NO DATA").format(
        sql.SQL(kind), stage, _names(columns), sql.Identifier(ROW_NUMBER), target
    )


def merge_statement(
    stage: sql.Identifier, target: sql.Identifier, columns: Sequence[str], keys: Sequence[str]
) -> sql.Composed:
    """From a staged table into the target: added, or with keys the last row of each key put in its place."""
    names = _names(columns)
    if not keys:
        return sql.SQL("INSERT INTO {} ({names}) SELECT {names} FROM {}").format(target, stage, names=names)
    others = [column for column in columns if column not in keys]
    change = sql.SQL("UPDATE SET {}").format(
        sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(column)) for column in others)
    )
    # In the order of the keys, so that two tasks that meet in an index do not wait for each other in a circle.
    return sql.SQL(
        "INSERT INTO {} ({names}) SELECT DISTINCT ON ({keys}) {names} FROM {} ORDER BY {keys}, {} DESC "
        "ON CONFLICT ({keys}) DO {}"
    ).format(
        target,
        stage,
        sql.Identifier(ROW_NUMBER),
        change if others else sql.SQL("NOTHING"),
        names=names,
        keys=_names(keys),
    )


def _copy_column(column: pa.Array) -> pa.Array:
    column = plain(column)
    if kind_of(column.type) is Kind.BINARY:
        return enclosed("\\x", hexadecimal(column), "")
    return column


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(column) for column in columns)

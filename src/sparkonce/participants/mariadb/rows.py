"""Arrow batches → INSERT statements of many rows, rendered by columns.

Not LOAD DATA LOCAL: it turns values that do not fit into warnings, many servers switch it off, and it was measured to
be at most a third faster. Every value is a literal: numbers as they are, text and times in quotes, with quotes and
backslashes escaped, bytes in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.errors import UsageError
from sparkonce.participants.columns import Kind, kind_of
from sparkonce.participants.mariadb.table import quoted
from sparkonce.participants.text import enclosed, has_not_a_number, hexadecimal, plain

STATEMENT_BYTES = 4_000_000
"""Servers allow 16 MB by default (`max_allowed_packet`)."""
_IN_QUOTES = (Kind.STRING, Kind.DATE, Kind.TIME, Kind.TIMESTAMP)


def insert_head(table: str, columns: Sequence[str]) -> str:
    """What comes before the rows."""
    return f"INSERT INTO {quoted(table)} ({_names(columns)}) VALUES "  # noqa: S608  Names are quoted.


def upsert_tail(columns: Sequence[str], keys: Sequence[str]) -> str:
    """What comes after the rows: nothing, or how a row that is there is replaced. The last one of several wins."""
    if not keys:
        return ""
    # A table of nothing but keys has nothing to replace; the assignment makes the row count as handled.
    changed = [column for column in columns if column not in keys] or [keys[0]]
    return " ON DUPLICATE KEY UPDATE " + ", ".join(f"{quoted(c)} = VALUES({quoted(c)})" for c in changed)


def merge_statement(stage: str, table: str, columns: Sequence[str], keys: Sequence[str], order: str) -> str:
    """From a staged table into the target, in the order in which the rows came."""
    names = _names(columns)
    select = f"SELECT {names} FROM {quoted(stage)} ORDER BY {quoted(order)}"  # noqa: S608  Names are quoted.
    return f"INSERT INTO {quoted(table)} ({names}) {select}{upsert_tail(columns, keys)}"


def insert_values(arrow_batch: pa.RecordBatch) -> Iterator[str]:
    """The rows as `(…),(…)`, in pieces of bounded size."""
    literals = [
        _literals(name, column) for name, column in zip(arrow_batch.schema.names, arrow_batch.columns, strict=True)
    ]
    rows = pc.binary_join_element_wise(*literals, pa.scalar(",", pa.large_string()))
    sizes = pc.add(pc.binary_length(rows), 3)
    pieces = pc.cast(pc.divide(pc.cumulative_sum(sizes), STATEMENT_BYTES), pa.int64())
    for piece in pc.unique(pieces):
        chosen = rows.filter(pc.equal(pieces, piece))
        whole = pa.LargeListArray.from_arrays(pa.array([0, len(chosen)], pa.int64()), chosen)
        yield f"({pc.binary_join(whole, pa.scalar('),(', pa.large_string()))[0].as_py()})"


def _literals(name: str, column: pa.Array) -> pa.Array:
    """A column of SQL literals; never null."""
    if has_not_a_number(column):
        raise UsageError(
            f"column {name} has NaN or an infinity, which MariaDB cannot keep: replace it, with null perhaps"
        )
    try:
        column = plain(column)
    except pa.ArrowInvalid as error:
        raise UsageError(f"MariaDB keeps microseconds, column {name} has more: {error}") from error
    kind = kind_of(column.type)
    if kind is Kind.BINARY:
        text = enclosed("x'", hexadecimal(column), "'")
    elif kind in _IN_QUOTES:
        text = column.cast(pa.large_string())
        if kind is Kind.STRING:
            for character in ("\\", "'"):
                text = pc.replace_substring(text, character, "\\" + character)
        text = enclosed("'", text, "'")
    else:
        text = column.cast(pa.large_string())
    return pc.fill_null(text, pa.scalar("NULL", pa.large_string()))


def _names(columns: Sequence[str]) -> str:
    return ", ".join(quoted(column) for column in columns)

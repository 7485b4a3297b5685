"""A table of PostgreSQL: its columns, what fits into them, its unique indexes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from sparkonce.errors import UsageError
from sparkonce.participants.columns import Column, Kind, decimal_fits, integer_fits, kind_of
from sparkonce.participants.postgres.connection import Connection

_INTEGER_BITS = {"int2": 16, "int4": 32, "int8": 64}
_FLOAT_BITS = {"float4": 32, "float8": 64}
_SIMPLE: dict[Kind, set[str]] = {
    Kind.BOOLEAN: {"bool"},
    # What a string says is checked by the server when it is loaded.
    Kind.STRING: {
        *("text", "varchar", "bpchar", "name", "citext", "json", "jsonb", "xml", "uuid", "inet", "cidr", "macaddr"),
        "enum",
    },
    Kind.BINARY: {"bytea"},
    Kind.DATE: {"date"},
    Kind.TIME: {"time"},
    Kind.TIMESTAMP: {"timestamp"},
    Kind.INSTANT: {"timestamptz"},
}
# A domain is looked at as the type beneath it. A numeric's modifier holds precision and scale.
_COLUMNS = """
    SELECT a.attname, CASE b.typtype WHEN 'e' THEN 'enum' ELSE b.typname END,
           CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
           a.attnotnull OR t.typnotnull, a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL,
           a.attgenerated <> '' OR a.attidentity = 'a'
    FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_UNIQUE = """
    SELECT array_agg(a.attname::text) FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
    WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
      AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid"""


def identifier(table: str) -> sql.Identifier:
    """`orders` or `shop.orders`, each part exactly as it is written."""
    return sql.Identifier(*table.split("."))


def beside(table: str, name: str) -> sql.Identifier:
    """Another table in the same schema."""
    return sql.Identifier(*table.split(".")[:-1], name)


def schema_of(table: str) -> str | None:
    """The schema of a table; None for the first one of the search path."""
    parts = table.split(".")
    return parts[0] if len(parts) > 1 else None


def require_schema(connection: Connection, table: str) -> None:
    """UsageError if tables cannot be made beside this one."""
    found = connection.execute(
        "SELECT s, has_schema_privilege(s, 'CREATE') FROM coalesce(%s, current_schema()) AS s", (schema_of(table),)
    ).fetchone()
    if found is None or not found[1]:
        name = found[0] if found else ""
        raise UsageError(
            f"this user may not make tables beside {table}, where rows wait: GRANT CREATE ON SCHEMA {name} TO …"
        )


@dataclass(frozen=True, slots=True)
class TableShape:
    """What the server knows of a table."""

    columns: list[Column]
    unique: set[frozenset[str]]


def read_table(connection: Connection, table: str, privileges: str) -> TableShape:
    """UsageError if it is not there, not a table, or may not be used as wanted."""
    quoted = identifier(table).as_string(connection)
    found = connection.execute(
        "SELECT c.oid, c.relkind, has_table_privilege(c.oid, %s) FROM pg_class c WHERE c.oid = to_regclass(%s)",
        (privileges, quoted),
    ).fetchone()
    if found is None:
        raise UsageError(f"PostgreSQL has no table {quoted} that this user can see; create it, or name its schema")
    oid, kind, allowed = found
    if kind not in (b"r", b"p", "r", "p"):
        raise UsageError(f"{quoted} is not a table; rows can be written to tables only")
    if not allowed:
        raise UsageError(f"this user may not write to {quoted}: GRANT {privileges} ON {quoted} TO …")
    unique = {frozenset(names) for (names,) in connection.execute(_UNIQUE, (oid,))}
    return TableShape([_column(*row) for row in connection.execute(_COLUMNS, (oid,))], unique)


def fits(arrow_type: pa.DataType, column: Column) -> bool:
    """Whether every value of an Arrow type can be kept exactly."""
    kind = kind_of(arrow_type)
    if kind is Kind.NULL:
        return True
    if kind is Kind.INTEGER and column.type in _INTEGER_BITS:
        return integer_fits(arrow_type, _INTEGER_BITS[column.type])
    if kind in (Kind.INTEGER, Kind.DECIMAL):
        return column.type == "numeric" and decimal_fits(arrow_type, column)
    if kind is Kind.FLOAT:
        return bool(_FLOAT_BITS.get(column.type, 0) >= arrow_type.bit_width)
    return kind is not None and column.type in _SIMPLE.get(kind, set())


def _column(name: str, base: str, modifier: int, not_null: bool, has_default: bool, generated: bool) -> Column:  # noqa: FBT001
    limited = base == "numeric" and modifier >= 0
    return Column(
        name=name,
        type=base,
        precision=((modifier - 4) >> 16) & 0xFFFF if limited else None,
        scale=(modifier - 4) & 0x7FF if limited else 0,
        nullable=not not_null,
        has_default=has_default,
        generated=generated,
    )

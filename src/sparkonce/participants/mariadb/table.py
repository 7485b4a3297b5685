"""A table of MariaDB or MySQL: its columns, what fits into them, its unique indexes, its engine."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pymysql

from sparkonce.errors import UsageError
from sparkonce.participants.columns import Column, Kind, decimal_fits, integer_fits, kind_of
from sparkonce.participants.mariadb.connection import execute

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set", "uuid"}
_SIMPLE: dict[Kind, set[str]] = {
    # What a string says, and how long it is, is checked by the server when it is loaded.
    Kind.STRING: _TEXTS | {"inet4", "inet6"},
    Kind.BINARY: {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"},
    Kind.DATE: {"date"},
    Kind.TIME: {"time"},
    Kind.BOOLEAN: {"tinyint"},
}
_MICROSECONDS = 6
_COLUMNS = """
    SELECT column_name, data_type, numeric_precision, numeric_scale, datetime_precision, is_nullable, column_default,
           extra, column_type
    FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
_UNIQUE = """
    SELECT index_name, column_name, sub_part FROM information_schema.statistics
    WHERE table_schema = %s AND table_name = %s AND non_unique = 0"""


def quoted(name: str) -> str:
    """`orders` or `shop.orders`, each part exactly as it is written."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))


def beside(table: str, name: str) -> str:
    """Another table in the same database."""
    return ".".join([*table.split(".")[:-1], name])


def located(connection: pymysql.Connection, table: str) -> tuple[str, str]:
    """The database and the plain name of a table."""
    *database, name = table.split(".")
    return (database[0] if database else str(execute(connection, "SELECT DATABASE()")[0][0])), name


@dataclass(frozen=True, slots=True)
class TableShape:
    """What the server knows of a table."""

    columns: list[Column]
    unique: set[frozenset[str]]


def read_table(connection: pymysql.Connection, table: str) -> TableShape:
    """UsageError if it is not there or cannot take part in a transaction."""
    place = located(connection, table)
    found = execute(
        connection,
        "SELECT engine, table_type FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        place,
    )
    if not found:
        raise UsageError(
            f"MariaDB has no table {'.'.join(place)} that this user can see; create it, or name its database"
        )
    engine, kind = found[0]
    if kind != "BASE TABLE":
        raise UsageError(f"{table} is not a table; rows can be written to tables only")
    if engine.lower() != "innodb":
        raise UsageError(
            f"table {table} has the engine {engine}, which has no transactions: ALTER TABLE {table} ENGINE=InnoDB"
        )
    columns = [_column(*row) for row in execute(connection, _COLUMNS, place)]
    return TableShape(columns, _unique(execute(connection, _UNIQUE, place)))


def fits(arrow_type: pa.DataType, column: Column) -> bool:
    """Whether every value of an Arrow type can be kept exactly."""
    kind = kind_of(arrow_type)
    name, _, unsigned = column.type.partition(" ")
    if kind is Kind.NULL:
        return True
    if kind is Kind.INTEGER and name in _INTEGER_BITS:
        return _integer_fits(arrow_type, _INTEGER_BITS[name], is_unsigned=bool(unsigned))
    if kind in (Kind.INTEGER, Kind.DECIMAL):
        return name == "decimal" and not unsigned and decimal_fits(arrow_type, column)
    if kind is Kind.FLOAT:
        return name == "double" or (name == "float" and arrow_type.bit_width <= 32)
    if kind in (Kind.TIMESTAMP, Kind.INSTANT):
        return name in ("datetime", "timestamp") and column.scale == _MICROSECONDS
    return kind is not None and name in _SIMPLE.get(kind, set())


def _integer_fits(arrow_type: pa.DataType, bits: int, *, is_unsigned: bool) -> bool:
    if is_unsigned:
        return bool(pa.types.is_unsigned_integer(arrow_type) and arrow_type.bit_width <= bits)
    return integer_fits(arrow_type, bits)


def _column(
    name: str,
    data_type: str,
    precision: int | None,
    scale: int | None,
    fraction: int | None,
    nullable: str,
    default: str | None,
    extra: str,
    column_type: str,
) -> Column:
    is_decimal = data_type.lower() == "decimal"
    return Column(
        name=name,
        type=data_type.lower() + (" unsigned" if "unsigned" in column_type.lower() else ""),
        precision=precision if is_decimal else None,
        scale=(scale or 0) if is_decimal else (fraction or 0),
        nullable=nullable == "YES",
        has_default=default is not None or "auto_increment" in extra.lower(),
        generated="generated" in extra.lower() and "default_generated" not in extra.lower(),
    )


def _unique(rows: list[tuple[str, str, int | None]]) -> set[frozenset[str]]:
    """Indexes on whole columns; one on the beginning of a text does not tell rows apart."""
    indexes: dict[str, set[str]] = {}
    for index, column, part in rows:
        indexes.setdefault(index, set()).add(column if part is None else f"{column}({part})")
    return {frozenset(columns) for columns in indexes.values()}

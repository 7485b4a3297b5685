"""Arrow columns against the columns of a table: what fits, decided before any row moves. Pure; knows no database.

Strict where a database would change a value without a word: numbers must fit whatever their value, a time with a zone
does not go into a column without one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import pyarrow as pa

from sparkonce.errors import UsageError


class Kind(Enum):
    """Arrow types by what they are in a database."""

    NULL = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    FLOAT = auto()
    DECIMAL = auto()
    STRING = auto()
    BINARY = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    INSTANT = auto()
    """A timestamp with a zone."""


_KINDS: list[tuple[Callable[[pa.DataType], bool], Kind]] = [
    (pa.types.is_null, Kind.NULL),
    (pa.types.is_boolean, Kind.BOOLEAN),
    (pa.types.is_integer, Kind.INTEGER),
    (pa.types.is_floating, Kind.FLOAT),
    (pa.types.is_decimal, Kind.DECIMAL),
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t), Kind.STRING),
    (
        lambda t: (
            pa.types.is_binary(t)
            or pa.types.is_large_binary(t)
            or pa.types.is_fixed_size_binary(t)
            or pa.types.is_binary_view(t)
        ),
        Kind.BINARY,
    ),
    (pa.types.is_date, Kind.DATE),
    (pa.types.is_time, Kind.TIME),
    (lambda t: pa.types.is_timestamp(t) and t.tz is None, Kind.TIMESTAMP),
    (pa.types.is_timestamp, Kind.INSTANT),
]


def kind_of(arrow_type: pa.DataType) -> Kind | None:
    """What a type is; None for lists, structs, maps, durations, which no table takes as they are."""
    if pa.types.is_dictionary(arrow_type):
        return kind_of(arrow_type.value_type)
    return next((kind for matches, kind in _KINDS if matches(arrow_type)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    """The database's name for it, in lower case, without precision."""
    precision: int | None = None
    """Decimal digits in all, where the column limits them."""
    scale: int = 0
    nullable: bool = True
    has_default: bool = False
    generated: bool = False
    """Computed by the database; cannot be written."""

    @property
    def required(self) -> bool:
        """Whether a row without it is refused."""
        return not (self.nullable or self.has_default or self.generated)


def value_type(arrow_type: pa.DataType) -> pa.DataType:
    """Without a dictionary."""
    return arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type


def integer_fits(arrow_type: pa.DataType, signed_bits: int) -> bool:
    """Whether every value of an Arrow integer fits into so many bits, one of them for the sign."""
    return bool(arrow_type.bit_width + pa.types.is_unsigned_integer(arrow_type) <= signed_bits)


def decimal_fits(arrow_type: pa.DataType, column: Column) -> bool:
    """Whether every decimal, or integer, fits without rounding."""
    if column.precision is None:
        return True
    if pa.types.is_integer(arrow_type):
        digits, scale = len(str(2**arrow_type.bit_width)), 0
    else:
        digits, scale = arrow_type.precision, arrow_type.scale
    return bool(column.scale >= scale and column.precision - column.scale >= digits - scale)


def require_columns(
    table: str,
    schema: pa.Schema,
    columns: Sequence[Column],
    fits: Callable[[pa.DataType, Column], bool],
    keys: Sequence[str] = (),
) -> None:
    """UsageError with everything that is wrong, so that it can be put right at once."""
    by_name = {column.name: column for column in columns}
    problems = [problem for field in schema for problem in _field_problems(field, by_name, fits)]
    given = set(schema.names)
    if len(given) < len(schema.names):
        problems.append("two columns of the rows have the same name")
    problems += [
        f"its column {column.name} ({column.type}) is neither nullable nor has a default, and the rows do not have it"
        for column in columns
        if column.required and column.name not in given
    ]
    problems += [f"the rows have no column {key}, which is a key" for key in keys if key not in given]
    problems += [
        f"its key column {key} may be null, and null is never equal to null: make it NOT NULL"
        for key in keys
        if key in by_name and by_name[key].nullable
    ]
    if problems:
        raise UsageError(f"table {table} cannot take these rows: {'; '.join(problems)}")


def require_unique(table: str, keys: Collection[str], unique: Collection[frozenset[str]]) -> None:
    """An upsert needs a unique index on exactly its keys."""
    if frozenset(keys) not in unique:
        listed = ", ".join(keys)
        raise UsageError(
            f"table {table} has no unique index on ({listed}), which an upsert by these keys needs. "
            f"Create it: ALTER TABLE {table} ADD PRIMARY KEY ({listed})"
        )


def _field_problems(
    field: pa.Field, columns: dict[str, Column], fits: Callable[[pa.DataType, Column], bool]
) -> list[str]:
    if field.name not in columns:
        near = difflib.get_close_matches(field.name, columns, 1)
        return [f"it has no column {field.name}{f' (did you mean {near[0]}?)' if near else ''}"]
    column = columns[field.name]
    if column.generated:
        return [f"its column {column.name} is generated and cannot be written"]
    if kind_of(field.type) is None:
        return [f"column {field.name} is {field.type}, which no column takes: use to_json or select its parts"]
    if not fits(value_type(field.type), column):
        wanted = f"{column.type}({column.precision},{column.scale})" if column.precision else column.type
        return [f"column {field.name} is {field.type}, which does not always fit into {wanted}: cast it"]
    return []

"""JSON objects → Arrow structs, many at once, each value checked to be exactly one object of its schema.

Arrow's reader takes a stream of objects and does not know where one Kafka record ends. It cannot be misled here: every
value begins with `{`, ends with `}` and is followed by a newline. Between `}` and `{` there is only ever room for a new
object at the top level, because inside of objects and arrays a comma would be needed, and inside of texts a newline is
not allowed. So every value gives at least one row, and as many rows as values means one row each.

A missing field is null, an unknown one is ignored, a wrong type, a known field twice, or a number that does not fit is
malformed. Times without a zone are UTC.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkonce.errors import UsageError

_TYPES: dict[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", "UTC"),
    TimestampNTZType: pa.timestamp("us"),
}
_WHITESPACE = " \t\r\n"


def json_type(kind: DataType, column: str) -> pa.DataType:
    """The Arrow type of a JSON value; an error for what JSON has no certain form for."""
    if isinstance(kind, StructType):
        return pa.struct([_json_field(field.name, field.dataType, field.nullable, column) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(_json_field("element", kind.elementType, kind.containsNull, column))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if type(kind) not in _TYPES:
        raise UsageError(
            f"{column}Schema: {kind.simpleString()} cannot be read from JSON here. Leave the field out, or read the "
            f"column with {column}Format=string and use Spark's from_json"
        )
    return _TYPES[type(kind)]


def _json_field(name: str, kind: DataType, nullable: bool, column: str) -> pa.Field:  # noqa: FBT001
    if not nullable:
        raise UsageError(f"{column}Schema: any field of a JSON value can be missing; write {name!r} without NOT NULL")
    return pa.field(name, json_type(kind, column))


def parse_json(values: pa.Array, kind: pa.StructType) -> pa.Array:
    """One struct a value; raises ArrowInvalid if any of them is malformed. There must be no nulls."""
    if len(values) == 0:
        return pa.array([], kind)
    lines = pc.binary_join_element_wise(_objects(values.cast(pa.string())), "\n", "")
    text = lines.buffers()[2]
    table = pj.open_json(
        pa.BufferReader(text),
        pj.ReadOptions(use_threads=False, block_size=text.size),
        pj.ParseOptions(explicit_schema=_readable(kind), unexpected_field_behavior="ignore"),
    ).read_all()
    if table.num_rows != len(values):
        raise pa.ArrowInvalid(f"{len(values)} values hold {table.num_rows} JSON objects")
    columns = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(columns, fields=list(_readable(kind))).cast(kind)


def _objects(texts: pa.Array) -> pa.Array:
    """The texts without white space around them, if all of them look like objects."""
    if not _look_like_objects(texts):
        texts = pc.utf8_trim(texts, _WHITESPACE)
        if not _look_like_objects(texts):
            raise pa.ArrowInvalid("a value is not a JSON object")
    return texts


def _look_like_objects(texts: pa.Array) -> bool:
    return bool(pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py())


def _readable(kind: pa.StructType) -> pa.Schema:
    return pa.schema([field.with_type(_readable_type(field.type)) for field in kind])


def _readable_type(kind: pa.DataType) -> pa.DataType:
    """Arrow's reader takes dates as numbers only; as times it takes them as text."""
    if pa.types.is_date32(kind):
        return pa.timestamp("s")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable_type(kind.value_type)))
    return kind

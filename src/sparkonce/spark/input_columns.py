"""The columns that the sink takes, checked before any job runs. Pure: a schema in, a selection out."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkonce.errors import UsageError
from sparkonce.spark.sink_options import SinkOptions

_TEXT = (BinaryType, StringType)
_EXPECTED: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_TEXT, "binary or string"),
    "key": (_TEXT, "binary or string"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType, LongType), "int"),
    "timestamp": ((TimestampType, TimestampNTZType, LongType), "timestamp, or bigint milliseconds"),
    "headers": ((ArrayType,), "array<struct<key: string, value: binary>>"),
}


def check_columns(schema: StructType, options: SinkOptions) -> list[str]:
    """The names of the columns to take, in a fixed order; all that is wrong in one error."""
    found = {field.name: field.dataType for field in schema.fields}
    problems = []
    if "value" not in found:
        problems.append("there is no column 'value'")
    if options.partitioner == "fixed" and "partition" not in found:
        problems.append("there is no column 'partition', which the partitioner 'fixed' keeps")
    if "topic" not in found and options.topic is None:
        problems.append("there is no column 'topic', and the sink has no topic")
    twice = {name for name in found if schema.names.count(name) > 1}
    problems += [f"there are several columns {name!r}" for name in twice]
    unknown = found.keys() - _EXPECTED.keys()
    problems += [f"there is a column {name!r} that Kafka has no place for" for name in unknown]
    for name, (kinds, expected) in _EXPECTED.items():
        if name in found and not (isinstance(found[name], kinds) and _headers_fit(name, found[name])):
            problems.append(f"column {name!r} must be {expected}, but it is {found[name].simpleString()}")
    if problems:
        wanted = ", ".join(f"{name} ({expected})" for name, (_, expected) in _EXPECTED.items())
        raise UsageError(
            f"the DataFrame does not fit the Kafka sink: {'; '.join(sorted(problems))}. It has "
            f"{schema.simpleString()}; the sink takes {wanted}; only value is required"
        )
    return [name for name in _EXPECTED if name in found]


def _headers_fit(name: str, kind: DataType) -> bool:
    if name != "headers":
        return True
    element = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(element, StructType) or element.names != ["key", "value"]:
        return False
    return isinstance(element["key"].dataType, StringType) and isinstance(element["value"].dataType, _TEXT)

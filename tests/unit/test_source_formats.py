"""Text and JSON on Arrow columns: each malformed record is found, and nothing else is touched."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition
from sparkonce.records import SCHEMA
from sparkonce.spark.source_columns import Columns, spark_columns
from sparkonce.spark.source_formats import ColumnFormat, RecordFormats, convert_column
from sparkonce.spark.source_json import json_type, parse_json

SOURCE = TopicPartition("t", 3)


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


KIND: pa.StructType = json_type(
    struct(
        id=LongType(),
        small=IntegerType(),
        name=StringType(),
        amount=DoubleType(),
        price=DecimalType(10, 2),
        paid=BooleanType(),
        at=TimestampType(),
        day=DateType(),
        tags=ArrayType(StringType()),
        inner=struct(items=ArrayType(struct(count=IntegerType(), day=DateType()))),
    ),
    "value",
)


def converted(values: list[bytes | None], wanted: ColumnFormat, kind: pa.DataType) -> tuple[list[Any], list[int]]:
    offsets = pa.array(range(100, 100 + len(values)), pa.int64())
    found = convert_column(pa.array(values, pa.binary()), wanted, kind, offsets, SOURCE)
    return found.column.to_pylist(), sorted(found.problems)


def as_json(*values: bytes | None) -> tuple[list[Any], list[int]]:
    """Without the fields that are null."""
    rows, malformed = converted([*values], ColumnFormat("value", "json", "…"), KIND)
    return [row and {name: value for name, value in row.items() if value is not None} for row in rows], malformed


def test_all_types() -> None:
    text = (
        b'{"id": 9223372036854775807, "small": -1, "name": "a\\u00e4\\n\xc3\xa4", "amount": 2, "price": 1.25, '
        b'"paid": true, "at": "2024-01-02T03:04:05.123456+01:00", "day": "2024-01-02", "tags": ["x", null], '
        b'"inner": {"items": [{"count": 1, "day": "1969-12-31"}, null, {}], "unknown": [{"deep": 1}]}, "more": null}'
    )
    expected = {
        "id": 2**63 - 1,
        "small": -1,
        "name": "aä\nä",
        "amount": 2.0,
        "price": Decimal("1.25"),
        "paid": True,
        "at": datetime(2024, 1, 2, 2, 4, 5, 123456, UTC),
        "day": date(2024, 1, 2),
        "tags": ["x", None],
        "inner": {"items": [{"count": 1, "day": date(1969, 12, 31)}, None, {"count": None, "day": None}]},
    }
    assert as_json(text) == ([expected], [])
    assert as_json(b'{"at": "2024-01-02 03:04:05"}') == ([{"at": datetime(2024, 1, 2, 3, 4, 5, 0, UTC)}], [])


def test_missing_unknown_and_null() -> None:
    rows, malformed = as_json(b"{}", None, b'{"id": null, "x": {}}', b' {\n"id":\n7}\r\n', None, b'{"ID": 1}')
    assert rows == [{}, None, {}, {"id": 7}, None, {}]
    assert malformed == []


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"null",
        b"5",
        b"[]",
        b'[{"id": 1}]',
        b'"text"',
        b"{",
        b"}",
        b"{}{}",
        b'{"id": 1}{"id": 2}',
        b'{"id": 1},{"id": 2}',
        b'{"id": 1} x}',
        b'{"id": 1,}',
        b"{'id': 1}",
        b'{"id": 1.5}',
        b'{"id": 1e3}',
        b'{"id": "1"}',
        b'{"id": true}',
        b'{"id": 9223372036854775808}',
        b'{"small": 3000000000}',
        b'{"name": 5}',
        b'{"name": {"x": 1}}',
        b'{"name": "two\nlines"}',
        b'{"name": "\xff"}',
        b'{"name": "\\ud800"}',
        b'{"paid": 1}',
        b'{"price": 1.255}',
        b'{"at": 5}',
        b'{"at": "yesterday"}',
        b'{"day": 5}',
        b'{"day": "2024-02-30"}',
        b'{"tags": "x"}',
        b'{"tags": {}}',
        b'{"inner": []}',
        b'{"inner": {"items": [5]}}',
        b'{"id": 1, "id": 2}',
        b'{"id": 1}\x00',
        b'\xef\xbb\xbf{"id": 1}',
        b"\x00\x00\x00\x00\x05avro",
    ],
)
def test_malformed(value: bytes) -> None:
    assert as_json(b'{"id": 1}', value, b'{"id": 2}', None, value) == ([{"id": 1}, None, {"id": 2}, None, None], [1, 4])


def test_values_that_only_fit_together() -> None:
    # Joined, each of these groups would be as many objects as it has values.
    for group in (
        [b'{"id": 1}{"id":', b"2}"],
        [b'{"name": "}', b'{"}', b"{}{}"],
        [b'{"tags": [{}', b"{}]}", b"{}{}"],
        [b"{}null", b"", b"{}"],
    ):
        assert as_json(*group)[1] == list(range(len(group)))[: len(group) - (group[-1] == b"{}")]


PIECES = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b",",
        b":",
        b"\n",
        b" ",
        b"1",
        b"null",
        b"{}",
        b'"id":1',
        b'"name":"x"',
        b"\\",
        b"\xff",
    ]
)
VALUES = st.one_of(
    st.lists(PIECES, max_size=6).map(b"".join),
    st.integers(-5, 5).map(lambda number: json.dumps({"id": number, "name": "}\n{"}).encode()),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=6))
def test_a_value_is_the_same_alone_and_among_others(values: list[bytes]) -> None:
    together, malformed = as_json(*values)
    alone = [as_json(value) for value in values]
    assert together == [rows[0] for rows, _ in alone]
    assert malformed == [row for row, (_, found) in enumerate(alone) if found]
    for row, value in enumerate(values):
        if row not in malformed:
            assert isinstance(json.loads(value), dict)


def test_text() -> None:
    wanted = ColumnFormat("key", "string")
    assert converted([b"a", None, b"\xc3\xa4", b"", b"\xff", b"b\xc3"], wanted, pa.string()) == (
        ["a", None, "ä", "", None, None],
        [4, 5],
    )
    assert converted([], wanted, pa.string()) == ([], [])
    assert converted([None], wanted, pa.string()) == ([None], [])


def test_one_malformed_value_among_many() -> None:
    values: list[bytes | None] = [b'{"id": %d}' % number for number in range(20_000)]
    values[12_345] = b'{"id": "x"}'
    rows, malformed = as_json(*values)
    assert malformed == [12_345]
    assert [row and row["id"] for row in rows] == [None if n == 12_345 else n for n in range(20_000)]


def test_no_values() -> None:
    assert parse_json(pa.array([], pa.binary()), KIND).type == KIND


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (struct(m=MapType(StringType(), LongType())), "valueSchema: map<string,bigint> cannot be read from JSON here"),
        (struct(b=ArrayType(BinaryType())), "valueSchema: binary cannot be read"),
        (StructType([StructField("id", LongType(), nullable=False)]), "write 'id' without NOT NULL"),
    ],
)
def test_types_that_json_does_not_have(kind: StructType, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        json_type(kind, "value")


def records(keys: list[bytes | None], values: list[bytes | None]) -> pa.RecordBatch:
    count = len(keys)
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "offset": pa.array(range(10, 10 + count), pa.int64()),
        "timestamp": pa.array([0] * count, pa.int64()).cast(SCHEMA.field("timestamp").type),
        "timestamp_type": pa.array([0] * count, SCHEMA.field("timestamp_type").type),
        "headers": pa.nulls(count, SCHEMA.field("headers").type),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def test_what_becomes_of_malformed_records() -> None:
    batch = records([b"k", b"\xff", b"l", b"\xfe"], [b"v", b"w", b"\xff", b"\xff"])

    def rows(on_malformed: str) -> list[dict[str, Any]]:
        formats = RecordFormats(
            key=ColumnFormat("key", "string"), value=ColumnFormat("value", "string"), on_malformed=on_malformed
        )
        columns = Columns(formats=formats)
        spark = columns.spark_schema()
        assert isinstance(spark, StructType)
        found: list[dict[str, Any]] = spark_columns(batch, SOURCE, columns.arrow_schema(spark), formats).to_pylist()
        return found

    with pytest.raises(UsageError, match=r"the key of t-3 at offset 11 is not UTF-8 text\. Let onMalformed be null"):
        rows("fail")
    errors = [
        None,
        "the key of t-3 at offset 11 is not UTF-8 text",
        "the value of t-3 at offset 12 is not UTF-8 text",
        "the key of t-3 at offset 13 is not UTF-8 text",
    ]
    nulls = rows("null")
    assert [row["_error"] for row in nulls] == errors
    assert [(row["key"], row["value"]) for row in nulls] == [("k", "v"), (None, "w"), ("l", None), (None, None)]
    assert "_key" not in nulls[0]
    raw = rows("raw")
    assert [row["_error"] for row in raw] == errors
    assert [(row["_key"], row["_value"]) for row in raw] == [
        (None, None),
        (b"\xff", b"w"),
        (b"l", b"\xff"),
        (b"\xfe", b"\xff"),
    ]

"""Every type and every awkward value through COPY, as psycopg reads them back; and what is refused before any row."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkonce.commit import Branch, Participant, query_digest, sink_digest, write_branch
from sparkonce.errors import AbortableError, RetriableError, UsageError
from sparkonce.participants.postgres import postgres_participant
from tests.servers.database_servers import Postgres

WAL_SEGMENT_BYTES = 16 * 2**20
AWKWARD = [
    "",
    " ",
    "a,b",
    'say "hi"',
    "'",
    "\\",
    "\\N",
    "\\.",
    "line\nbreak",
    "\r\n",
    "a\n\\.\nb",
    "tab\t",
    "NULL",
    "ünïcödé 🎉",
    None,
]
TYPES: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "text": ("text", pa.string(), AWKWARD),
    "large": ("varchar", pa.large_string(), AWKWARD),
    "view": ("text", pa.string_view(), AWKWARD),
    "dictionary": ("text", pa.dictionary(pa.int32(), pa.string()), ["a", "", None, "a"]),
    "json": ("jsonb", pa.string(), ['{"a": "\\"\\n"}', "[]", None]),
    "uuid": ("uuid", pa.string(), ["7b0e3a5e-97b2-4e0c-9d3a-0d4c8b0a1f00", None]),
    "boolean": ("bool", pa.bool_(), [True, False, None]),
    "small": ("int2", pa.int16(), [-(2**15), 2**15 - 1, None]),
    "integer": ("int4", pa.int32(), [-(2**31), 2**31 - 1, None]),
    "long": ("int8", pa.int64(), [-(2**63), 2**63 - 1, None]),
    "unsigned": ("numeric", pa.uint64(), [0, 2**64 - 1, None]),
    "float": ("float4", pa.float32(), [0.1, -math.inf, math.inf, math.nan, None, 3.4028234663852886e38]),
    "double": ("float8", pa.float64(), [0.1, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -0.0, None]),
    "decimal": ("numeric(38,18)", pa.decimal128(38, 18), [Decimal("-1.000000000000000001"), Decimal(0), None]),
    "wide": ("numeric", pa.decimal256(76, 2), [Decimal("9" * 74 + ".99"), None]),
    "bytes": ("bytea", pa.binary(), [b"", b"\x00\xff", b"\\x00", b'"\n', None, bytes(range(256))]),
    "fixed": ("bytea", pa.binary(3), [b"abc", b"\x00\x00\x00", None]),
    "day": ("date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29), None]),
    "moment": (
        "timestamptz",
        pa.timestamp("us", "America/New_York"),
        [datetime(2024, 3, 10, 7, 0, 0, 1, UTC), datetime(1900, 1, 1, tzinfo=UTC), None],
    ),
    "wall": ("timestamp", pa.timestamp("us"), [datetime(2024, 3, 10, 2, 30, 0, 999_999), datetime(1, 1, 1), None]),
    "seconds": ("timestamp", pa.timestamp("s"), [datetime(2024, 3, 10, 2, 30), None]),
    "clock": ("time", pa.time64("us"), [time(23, 59, 59, 999_999), time(0), None]),
    "nothing": ("int4", pa.null(), [None, None]),
}


@pytest.fixture
def table(postgres: Postgres) -> Iterator[str]:
    name = f"rows_{uuid.uuid4().hex[:8]}"
    yield name
    with postgres.connect() as connection:
        connection.execute(f"DROP TABLE IF EXISTS {name}")


def load(sink: Participant, *pieces: pa.RecordBatch, partition: int = 0) -> None:
    branch = Branch(query_digest("q"), 0, 1, sink_digest(sink.name), partition, 0)
    handle = write_branch(sink, branch, pieces)
    assert handle is not None
    sink.commit([handle])


def prepare_table(postgres: Postgres, table: str, columns: str) -> None:
    with postgres.connect() as connection:
        connection.execute(f"CREATE TABLE {table} ({columns})")


def read(postgres: Postgres, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    with postgres.connect() as connection:
        return connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()


@pytest.mark.parametrize("name", TYPES)
def test_every_type_comes_back(postgres: Postgres, table: str, name: str) -> None:
    sql_type, arrow_type, values = TYPES[name]
    prepare_table(postgres, table, f"n int4, v {sql_type}")
    sink = postgres_participant(postgres.dsn, table=table)
    rows = pa.RecordBatch.from_pydict(
        {"n": pa.array(range(len(values)), pa.int32()), "v": pa.array(values, arrow_type)}
    )
    sink.check(rows.schema)
    load(sink, rows.slice(0, 1), rows.slice(1))
    found = [value for _, value in read(postgres, table)]
    expected = rows.column("v").to_pylist()
    if name == "json":
        expected = [{"a": '"\n'}, [], None]
    elif name == "float":
        found = [None if value is None else float(np.float32(value)) for value in found]
    elif name == "uuid":
        expected = [uuid.UUID(value) if value else None for value in expected]
    assert [_comparable(value) for value in found] == [_comparable(value) for value in expected]


def test_columns_go_by_name_and_may_be_left_out(postgres: Postgres, table: str) -> None:
    prepare_table(postgres, table, 'id serial, "Odd ""name" text, v int4 DEFAULT 7, w text')
    sink = postgres_participant(postgres.dsn, table=f"public.{table}")
    rows = pa.RecordBatch.from_pydict({"w": pa.array(["w"]), 'Odd "name': pa.array(["odd"])})
    sink.check(rows.schema)
    load(sink, rows)
    assert read(postgres, table) == [(1, "odd", 7, "w")]


@pytest.mark.parametrize("mode", ["upsert", "idempotent"])
def test_upsert_takes_the_last_row_of_each_key(postgres: Postgres, table: str, mode: str) -> None:
    prepare_table(postgres, table, "a int4, b text, v text, PRIMARY KEY (b, a)")
    sink = postgres_participant(postgres.dsn, table=table, mode=mode, keys=["a", "b"])
    sink.preflight(1)
    first = _keyed([(1, "x", "old"), (2, "x", "stays")])
    sink.check(first.schema)
    load(sink, first)
    again = postgres_participant(postgres.dsn, table=table, mode=mode, keys=["a", "b"], name="again")
    load(again, _keyed([(1, "x", "new"), (3, "y", "one")]), _keyed([(3, "y", "two"), (1, "x", "newest")]))
    assert read(postgres, table) == [(1, "x", "newest"), (2, "x", "stays"), (3, "y", "two")]


def test_upsert_of_nothing_but_keys(postgres: Postgres, table: str) -> None:
    prepare_table(postgres, table, "a int4 PRIMARY KEY")
    sink = postgres_participant(postgres.dsn, table=table, mode="upsert", keys=["a"])
    load(sink, pa.RecordBatch.from_pydict({"a": pa.array([1, 1, 2], pa.int32())}))
    assert read(postgres, table) == [(1,), (2,)]


def test_key_that_two_tasks_write_does_not_wait_for_ever(postgres: Postgres, table: str) -> None:
    prepare_table(postgres, table, "a int4 PRIMARY KEY")
    sink = postgres_participant(postgres.dsn, table=table, mode="upsert", keys=["a"], lock_timeout_ms=200)
    rows = pa.RecordBatch.from_pydict({"a": pa.array([1], pa.int32())})
    branches = [Branch(query_digest("q"), 0, 1, sink_digest(sink.name), partition, 0) for partition in (0, 1)]
    handle = write_branch(sink, branches[0], [rows])
    with pytest.raises(AbortableError, match="lock timeout"):
        write_branch(sink, branches[1], [rows])
    sink.abort([handle] if handle else [])
    assert read(postgres, table) == []


@pytest.mark.parametrize(
    ("columns", "fields", "problem"),
    [
        ("a int4", {"b": pa.int32()}, "it has no column b"),
        ("amount int4", {"amonut": pa.int32()}, r"did you mean amount\?"),
        ("a int4", {"a": pa.int64()}, "a is int64, which does not always fit into int4: cast it"),
        ("a int4", {"a": pa.uint32()}, "does not always fit into int4"),
        ("a int4", {"a": pa.string()}, "a is string"),
        ("a float4", {"a": pa.float64()}, "a is double"),
        ("a numeric(10,2)", {"a": pa.decimal128(10, 3)}, r"does not always fit into numeric\(10,2\)"),
        ("a numeric(10,2)", {"a": pa.int32()}, r"does not always fit into numeric\(10,2\)"),
        ("a timestamp", {"a": pa.timestamp("us", "UTC")}, "does not always fit into timestamp"),
        ("a timestamptz", {"a": pa.timestamp("us")}, "does not always fit into timestamptz"),
        ("a int4[]", {"a": pa.list_(pa.int32())}, "which no column takes"),
        ("a int4, b int4 NOT NULL", {"a": pa.int32()}, "its column b .* the rows do not have it"),
        ("a int4 GENERATED ALWAYS AS (1) STORED", {"a": pa.int32()}, "is generated"),
        ("a int4 GENERATED ALWAYS AS IDENTITY", {"a": pa.int32()}, "is generated"),
    ],
)
def test_what_does_not_fit_is_refused(
    postgres: Postgres, table: str, columns: str, fields: dict[str, pa.DataType], problem: str
) -> None:
    prepare_table(postgres, table, columns)
    with pytest.raises(UsageError, match=problem):
        postgres_participant(postgres.dsn, table=table).check(pa.schema(list(fields.items())))


def test_types_that_fit_are_taken(postgres: Postgres, table: str) -> None:
    with postgres.connect() as connection:
        connection.execute(
            "DO $$ BEGIN CREATE DOMAIN price AS numeric(12,2); EXCEPTION WHEN duplicate_object THEN END $$"
        )
        connection.execute("DO $$ BEGIN CREATE TYPE mood AS ENUM ('sad'); EXCEPTION WHEN duplicate_object THEN END $$")
    prepare_table(postgres, table, "a int8, b numeric(12,2), c price, d mood, e float8")
    schema = pa.schema(
        [
            ("a", pa.uint32()),
            ("b", pa.decimal128(10, 2)),
            ("c", pa.decimal128(12, 2)),
            ("d", pa.string()),
            ("e", pa.float32()),
        ]
    )
    postgres_participant(postgres.dsn, table=table).check(schema)


def test_keys_need_a_unique_index(postgres: Postgres, table: str) -> None:
    prepare_table(postgres, table, "a int4 NOT NULL, b int4, UNIQUE (a, b)")
    schema = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    with pytest.raises(UsageError, match=r"no unique index on \(a\)"):
        postgres_participant(postgres.dsn, table=table, mode="upsert", keys=["a"]).check(schema)
    with pytest.raises(UsageError, match="b may be null"):
        postgres_participant(postgres.dsn, table=table, mode="upsert", keys=["a", "b"]).check(schema)
    with pytest.raises(UsageError, match="no column c, which is a key"):
        postgres_participant(postgres.dsn, table=table, mode="upsert", keys=["c"]).check(schema)


def test_table_must_exist_and_be_writable(postgres: Postgres, table: str) -> None:
    schema = pa.schema([("a", pa.int32())])
    with pytest.raises(UsageError, match="has no table"):
        postgres_participant(postgres.dsn, table="nowhere").check(schema)
    with pytest.raises(UsageError, match="is not a table"):
        postgres_participant(postgres.dsn, table="pg_catalog.pg_tables").check(schema)
    prepare_table(postgres, table, "a int4")
    with postgres.connect() as connection:
        connection.execute("DO $$ BEGIN CREATE ROLE guest LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    dsn = postgres.dsn.replace("user=postgres", "user=guest")
    with pytest.raises(UsageError, match="GRANT INSERT"):
        postgres_participant(dsn, table=table).check(schema)
    with postgres.connect() as connection:
        connection.execute(f"GRANT ALL ON {table} TO guest")
    postgres_participant(dsn, table=table).check(schema)
    for waiting in (table, f"public.{table}"):
        with pytest.raises(UsageError, match="GRANT CREATE ON SCHEMA public"):
            postgres_participant(dsn, table=waiting, mode="idempotent").check(schema)


@pytest.mark.parametrize("rows", [["a\0b"], ["x" * 11]])
def test_value_that_the_server_refuses_leaves_nothing(postgres: Postgres, table: str, rows: Sequence[str]) -> None:
    prepare_table(postgres, table, "a varchar(10)")
    sink = postgres_participant(postgres.dsn, table=table)
    with pytest.raises(UsageError, match="PostgreSQL, .*" + table):
        load(sink, pa.RecordBatch.from_pydict({"a": pa.array(rows)}))
    assert read(postgres, table) == []
    assert sink.in_doubt(query_digest("q")) == []


@pytest.mark.parametrize("mode", ["append", "upsert", "idempotent"])
def test_full_disk_leaves_nothing(postgres: Postgres, table: str, mode: str) -> None:
    prepare_table(postgres, table, "a int4 PRIMARY KEY, b text")
    sink = postgres_participant(postgres.dsn, table=table, mode=mode, keys=[] if mode == "append" else ["a"])
    sink.preflight(1)
    rows = pa.RecordBatch.from_pydict({"a": pa.array(range(100_000), pa.int32()), "b": pa.array(["x" * 200] * 100_000)})
    with postgres.files_limited(WAL_SEGMENT_BYTES + 1), pytest.raises(AbortableError, match="PostgreSQL, "):
        load(sink, rows)
    assert read(postgres, table) == []
    assert sink.in_doubt(query_digest("q")) == []
    load(sink, rows)
    assert read(postgres, table, "count(*)") == [(100_000,)]


def test_more_than_microseconds_is_refused(postgres: Postgres, table: str) -> None:
    prepare_table(postgres, table, "a timestamp")
    rows = pa.RecordBatch.from_pydict({"a": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(UsageError, match="microseconds"):
        load(postgres_participant(postgres.dsn, table=table), rows)


def test_prepared_transactions_switched_off(postgres_as_installed: Postgres) -> None:
    sink = postgres_participant(postgres_as_installed.dsn, table="any")
    with pytest.raises(UsageError, match="switched off") as refused:
        sink.preflight(branches=4)
    assert "\nmax_prepared_transactions = 64\n" in str(refused.value)
    assert "restart" in str(refused.value)


def test_too_few_prepared_transactions(postgres: Postgres, table: str) -> None:
    sink = postgres_participant(postgres.dsn, table=table)
    with pytest.raises(UsageError, match="max_prepared_transactions = 400"):
        sink.preflight(branches=200)
    prepare_table(postgres, table, "a int4")
    rows = pa.RecordBatch.from_pydict({"a": pa.array([1], pa.int32())})
    branches = [Branch(query_digest("q"), 0, 1, sink_digest(sink.name), partition, 0) for partition in range(65)]
    for branch in branches[:-1]:
        write_branch(sink, branch, [rows])
    with pytest.raises(AbortableError, match="maximum number of prepared transactions"):
        write_branch(sink, branches[-1], [rows])
    sink.abort(sink.in_doubt(query_digest("q")))
    assert read(postgres, table) == []


def test_server_that_is_not_there_may_come_back_but_a_wrong_user_will_not(postgres: Postgres) -> None:
    with pytest.raises(RetriableError):
        postgres_participant("host=127.0.0.1 port=1 dbname=x", table="t").in_doubt(query_digest("q"))
    dsn = postgres.dsn.replace("dbname=postgres", "dbname=nowhere")
    with pytest.raises(UsageError, match="nowhere"):
        postgres_participant(dsn, table="t").in_doubt(query_digest("q"))
    with pytest.raises(UsageError, match="dsn"):
        postgres_participant("port", table="t", name="x").in_doubt(query_digest("q"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mode": "replace"}, "choose one of append, upsert, idempotent"),
        ({"mode": "upsert"}, "needs keys"),
        ({"mode": "append", "keys": ["a"]}, "no use for keys"),
        ({"mode": "upsert", "keys": "a"}, r"keys=\['a'\]"),
    ],
)
def test_modes(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        postgres_participant("", table="t", **options)


def test_password_is_not_shown() -> None:
    assert "secret" not in repr(postgres_participant("password=secret", table="t"))


def _keyed(rows: list[tuple[int, str, str]]) -> pa.RecordBatch:
    a, b, v = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict({"v": pa.array(v), "a": pa.array(a, pa.int32()), "b": pa.array(b)})


def _comparable(value: object) -> object:
    """NaN equals nothing, not even itself; a moment is the same in every zone."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC)
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    return value

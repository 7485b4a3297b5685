"""Every type and every awkward value into MariaDB, as PyMySQL reads them back; and what is refused before any row."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sparkonce.commit import Branch, Handle, Participant, query_digest, sink_digest, write_branch
from sparkonce.errors import AbortableError, RetriableError, UsageError
from sparkonce.participants.mariadb import mariadb_participant
from sparkonce.participants.mariadb.participant import require_version
from sparkonce.participants.mariadb.rows import STATEMENT_BYTES
from tests.servers.database_servers import MariaDB

AWKWARD = [
    "",
    " ",
    "a,b",
    'say "hi"',
    "'",
    "\\",
    "\\'",
    "''",
    "\\N",
    "line\nbreak",
    "\0",
    "\x1a",
    "%s",
    "ünïcödé 🎉",
    None,
]
TYPES: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "text": ("text", pa.string(), AWKWARD),
    "large": ("varchar(50)", pa.large_string(), AWKWARD),
    "view": ("longtext", pa.string_view(), AWKWARD),
    "dictionary": ("text", pa.dictionary(pa.int32(), pa.string()), ["a", "", None, "a"]),
    "json": ("json", pa.string(), ['{"a": "\\"\\n"}', "[]", None]),
    "boolean": ("boolean", pa.bool_(), [True, False, None]),
    "small": ("smallint", pa.int16(), [-(2**15), 2**15 - 1, None]),
    "long": ("bigint", pa.int64(), [-(2**63), 2**63 - 1, None]),
    "unsigned": ("bigint unsigned", pa.uint64(), [0, 2**64 - 1, None]),
    "double": ("double", pa.float64(), [0.1, 5e-324, 1.7976931348623157e308, -0.5, None]),
    "decimal": ("decimal(38,18)", pa.decimal128(38, 18), [Decimal("-1.000000000000000001"), Decimal(0), None]),
    "bytes": ("blob", pa.binary(), [b"", b"\x00\xff", b"\\'", None, bytes(range(256))]),
    "fixed": ("binary(3)", pa.binary(3), [b"abc", b"\x00\x00\x00", None]),
    "day": ("date", pa.date32(), [date(1000, 1, 1), date(9999, 12, 31), date(2024, 2, 29), None]),
    "moment": (
        "timestamp(6) NULL",
        pa.timestamp("us", "America/New_York"),
        [datetime(2024, 3, 10, 7, 0, 0, 1, UTC), datetime(1971, 1, 1, tzinfo=UTC), None],
    ),
    "wall": ("datetime(6)", pa.timestamp("us"), [datetime(2024, 3, 10, 2, 30, 0, 999_999), datetime(1000, 1, 1), None]),
    "nothing": ("int", pa.null(), [None, None]),
}


@pytest.fixture
def table(mariadb: MariaDB) -> Iterator[str]:
    name = f"rows_{uuid.uuid4().hex[:8]}"
    yield name
    execute(mariadb, f"DROP TABLE IF EXISTS {name}")


def execute(mariadb: MariaDB, *statements: str) -> list[tuple[Any, ...]]:
    with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def participant(mariadb: MariaDB, table: str, **options: Any) -> Participant:
    url = f"mariadb://root@127.0.0.1:{mariadb.port}/{mariadb.database}"
    return mariadb_participant(url, table=table, **options)


def prepare(sink: Participant, *pieces: pa.RecordBatch, partition: int = 0) -> Handle:
    branch = Branch(query_digest("q"), 0, 1, sink_digest(sink.name), partition, 0)
    handle = write_branch(sink, branch, pieces)
    assert handle is not None
    return handle


def load(sink: Participant, *pieces: pa.RecordBatch) -> None:
    sink.commit([prepare(sink, *pieces)])


@pytest.mark.parametrize("name", TYPES)
def test_every_type_comes_back(mariadb: MariaDB, table: str, name: str) -> None:
    sql_type, arrow_type, values = TYPES[name]
    execute(mariadb, f"CREATE TABLE {table} (n int, v {sql_type}) CHARACTER SET utf8mb4")
    sink = participant(mariadb, table)
    rows = pa.RecordBatch.from_pydict(
        {"n": pa.array(range(len(values)), pa.int32()), "v": pa.array(values, arrow_type)}
    )
    sink.check(rows.schema)
    load(sink, rows.slice(0, 1), rows.slice(1))
    found = [v for _, v in execute(mariadb, "SET time_zone = '+00:00'", f"SELECT n, v FROM {table} ORDER BY n")]
    expected = rows.column("v").to_pylist()
    if name == "moment":
        expected = [value.astimezone(UTC).replace(tzinfo=None) if value else None for value in expected]
    assert found == expected


def test_time_of_day(mariadb: MariaDB, table: str) -> None:
    execute(mariadb, f"CREATE TABLE {table} (v time(6))")
    load(participant(mariadb, table), pa.RecordBatch.from_pydict({"v": pa.array([86_399_999_999], pa.time64("us"))}))
    assert execute(mariadb, f"SELECT v FROM {table}") == [(timedelta(hours=24) - timedelta(microseconds=1),)]


def test_rows_beyond_one_statement(mariadb: MariaDB, table: str) -> None:
    execute(mariadb, f"CREATE TABLE {table} (n int, v longtext)")
    count = 50
    text = "x" * (STATEMENT_BYTES // 20)
    rows = pa.RecordBatch.from_pydict({"n": pa.array(range(count), pa.int32()), "v": pa.array([text] * count)})
    load(participant(mariadb, table), rows)
    assert execute(mariadb, f"SELECT count(*), count(DISTINCT n), min(length(v)) FROM {table}") == [
        (count, count, len(text))
    ]


@pytest.mark.parametrize("mode", ["upsert", "idempotent"])
def test_upsert_takes_the_last_row_of_each_key(mariadb: MariaDB, table: str, mode: str) -> None:
    execute(mariadb, f"CREATE TABLE {table} (a int, b varchar(9), v text, PRIMARY KEY (b, a))")
    sink = participant(mariadb, table, mode=mode, keys=["a", "b"])
    sink.preflight(1)
    first = _keyed([(1, "x", "old"), (2, "x", "stays")])
    sink.check(first.schema)
    load(sink, first)
    again = participant(mariadb, table, mode=mode, keys=["a", "b"], name="again")
    load(again, _keyed([(1, "x", "new"), (3, "y", "one")]), _keyed([(3, "y", "two"), (1, "x", "newest")]))
    found = execute(mariadb, f"SELECT * FROM {table} ORDER BY a")
    assert found == [(1, "x", "newest"), (2, "x", "stays"), (3, "y", "two")]


def test_upserts_of_neighbouring_keys_do_not_wait_for_each_other(mariadb: MariaDB, table: str) -> None:
    execute(mariadb, f"CREATE TABLE {table} (a int PRIMARY KEY, v int)")
    sink = participant(mariadb, table, mode="upsert", keys=["a"], lock_timeout_ms=1_000)
    pieces = [pa.RecordBatch.from_pydict({"a": list(range(p, 40, 4)), "v": [p] * 10}) for p in range(4)]
    for _ in range(2):  # into an empty table, then over the same rows
        handles = [prepare(sink, piece, partition=p) for p, piece in enumerate(pieces)]
        sink.commit(handles)
    assert execute(mariadb, f"SELECT count(*), sum(a % 4 = v) FROM {table}") == [(40, 40)]


def test_key_that_two_tasks_write_does_not_wait_for_ever(mariadb: MariaDB, table: str) -> None:
    execute(mariadb, f"CREATE TABLE {table} (a int PRIMARY KEY)")
    sink = participant(mariadb, table, mode="upsert", keys=["a"], lock_timeout_ms=1_000)
    rows = pa.RecordBatch.from_pydict({"a": pa.array([1], pa.int32())})
    handle = prepare(sink, rows)
    with pytest.raises(AbortableError, match="Lock wait timeout"):
        prepare(sink, rows, partition=1)
    sink.abort([handle])
    assert execute(mariadb, f"SELECT * FROM {table}") == []


@pytest.mark.parametrize(
    ("columns", "fields", "problem"),
    [
        ("a int", {"b": pa.int32()}, "it has no column b"),
        ("a int", {"a": pa.int64()}, "a is int64, which does not always fit into int: cast it"),
        ("a int unsigned", {"a": pa.int32()}, "does not always fit into int unsigned"),
        ("a int", {"a": pa.string()}, "a is string"),
        ("a float", {"a": pa.float64()}, "a is double"),
        ("a decimal(10,2)", {"a": pa.decimal128(10, 3)}, r"does not always fit into decimal\(10,2\)"),
        ("a datetime", {"a": pa.timestamp("us")}, "does not always fit into datetime"),
        ("a text", {"a": pa.list_(pa.int32())}, "which no column takes"),
        ("a int, b int NOT NULL", {"a": pa.int32()}, "its column b .* the rows do not have it"),
        ("a int AS (1) STORED", {"a": pa.int32()}, "is generated"),
    ],
)
def test_what_does_not_fit_is_refused(
    mariadb: MariaDB, table: str, columns: str, fields: dict[str, pa.DataType], problem: str
) -> None:
    execute(mariadb, f"CREATE TABLE {table} ({columns})")
    with pytest.raises(UsageError, match=problem):
        participant(mariadb, table).check(pa.schema(list(fields.items())))


def test_table_and_keys_must_be_right(mariadb: MariaDB, table: str) -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    with pytest.raises(UsageError, match="has no table"):
        participant(mariadb, "nowhere").check(schema)
    execute(mariadb, f"CREATE TABLE {table} (a int, b varchar(99) NOT NULL, UNIQUE (b(5))) ENGINE = MyISAM")
    with pytest.raises(UsageError, match="MyISAM, which has no transactions"):
        participant(mariadb, table).check(schema)
    execute(mariadb, f"ALTER TABLE {table} ENGINE = InnoDB")
    participant(mariadb, table).check(schema)
    with pytest.raises(UsageError, match=r"no unique index on \(b\)"):
        participant(mariadb, table, mode="upsert", keys=["b"]).check(schema)


@pytest.mark.parametrize("values", [["x" * 11], [math.nan], [math.inf]])
def test_value_that_cannot_be_kept_leaves_nothing(mariadb: MariaDB, table: str, values: list[Any]) -> None:
    execute(mariadb, f"CREATE TABLE {table} (a {'varchar(10)' if isinstance(values[0], str) else 'double'})")
    sink = participant(mariadb, table)
    with pytest.raises(UsageError, match="MariaDB"):
        load(sink, pa.RecordBatch.from_pydict({"a": pa.array(values)}))
    assert execute(mariadb, f"SELECT * FROM {table}") == []
    assert sink.in_doubt(query_digest("q")) == []


def test_branch_that_is_still_tied_to_its_connection_is_not_taken_for_finished(mariadb: MariaDB, table: str) -> None:
    execute(mariadb, f"CREATE TABLE {table} (a int)")
    sink = participant(mariadb, table)
    branch = Branch(query_digest("q"), 0, 1, sink_digest(sink.name), 0, 0)
    xid = f"'{branch.global_id}','{branch.qualifier}'"
    with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
        for statement in (f"XA START {xid}", f"INSERT INTO {table} VALUES (1)", f"XA END {xid}", f"XA PREPARE {xid}"):
            cursor.execute(statement)
        with pytest.raises(RetriableError, match="still ties"):
            sink.commit([Handle(branch)])
    sink.commit([Handle(branch)])
    assert execute(mariadb, f"SELECT * FROM {table}") == [(1,)]


@pytest.mark.parametrize("version", ["10.11.6-MariaDB-0+deb12u1", "11.4.2-MariaDB", "8.0.36", "8.4.0"])
def test_versions_that_keep_prepared_branches(version: str) -> None:
    require_version(version)


@pytest.mark.parametrize("version", ["10.4.34-MariaDB", "5.5.5-10.3.39-MariaDB", "5.7.44", "unknown"])
def test_versions_that_do_not(version: str) -> None:
    with pytest.raises(UsageError, match="mode='idempotent'"):
        require_version(version)


@pytest.mark.parametrize("url", ["mariadb://localhost", "postgres://localhost/x", "localhost/x"])
def test_url_must_be_whole(url: str) -> None:
    with pytest.raises(UsageError, match="the url must look like"):
        mariadb_participant(url, table="t").in_doubt("")


def test_password_is_not_shown() -> None:
    assert "secret" not in repr(mariadb_participant("mariadb://u:secret@h/d", table="t"))


def _keyed(rows: list[tuple[int, str, str]]) -> pa.RecordBatch:
    a, b, v = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict({"v": pa.array(v), "a": pa.array(a, pa.int32()), "b": pa.array(b)})

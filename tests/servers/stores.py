"""The stores of the contract suite, each with the way in which an independent client looks at it."""

from __future__ import annotations

import itertools
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from sparkonce.commit import Participant
from sparkonce.participants import FileParticipant, MemoryParticipant, MemoryStore, published_files
from sparkonce.participants.mariadb import mariadb_participant
from sparkonce.participants.postgres import postgres_participant
from tests.servers.database_servers import DatabaseServer, MariaDB, Postgres
from tests.servers.sqlite_participant import SqliteParticipant

ROWS_A_TASK = 5
Row = tuple[int, int]
_number = itertools.count()


class Fixtures(Protocol):
    """pytest's `getfixturevalue`."""

    def __call__(self, name: str, /) -> Any: ...


class Store(ABC):
    """Two sinks in one store."""

    server: DatabaseServer | None = None
    port = 0
    """Where the sinks find the server: it may be a proxy's."""
    words: Mapping[str, bytes] = MappingProxyType({})
    """What the statements contain by which branches are prepared, committed and aborted."""
    branchwise = True
    """Whether branches become visible one by one; otherwise whole micro-batches do."""
    keeps_keys = False
    locks_while_writing = False
    """Whether a task that has written a key, and not prepared yet, keeps others from writing it."""
    """Whether the sinks are upserts: every micro-batch then writes the same keys."""

    def __init__(self) -> None:
        unique = next(_number)
        self.tables = (f"first_{unique}", f"second_{unique}")

    @property
    def sinks(self) -> tuple[Participant, Participant]:
        first, second = (self.sink(table) for table in self.tables)
        return first, second

    @abstractmethod
    def sink(self, table: str) -> Participant: ...

    @abstractmethod
    def rows(self, table: str) -> list[Row]:
        """What a reader sees, as an independent client reads it."""

    @abstractmethod
    def leftovers(self) -> int:
        """What is prepared or staged and not finished, ours or not."""

    def prepare_sinks(self) -> None:
        for sink in self.sinks:
            sink.preflight(branches=8)
            sink.check(arrow_rows(self, 0, 0).schema)

    @abstractmethod
    def prepare_foreign(self) -> Callable[[], None]:
        """Something of another program's; gives the way to end it."""

    def close(self) -> None:  # noqa: B027  Most have nothing of their own.
        """Ends what this store has started."""

    def all_rows(self) -> list[list[Row]]:
        return [sorted(self.rows(table)) for table in self.tables]

    def expected(self, batches: int, partitions: int) -> list[list[Row]]:
        """Both sinks after so many micro-batches."""
        numbers = [batches - 1] if self.keeps_keys and batches else range(batches)
        rows = [row for b in numbers for p in range(partitions) for row in source_rows(self, b, p)]
        return [sorted(rows), sorted(rows)]


def source_rows(store: Store, batch: int, partition: int) -> list[Row]:
    """What a task reads: (key, micro-batch). It is the same in every run."""
    first = partition * 100 if store.keeps_keys else (batch * 100 + partition) * 100
    return [(first + number, batch) for number in range(ROWS_A_TASK)]


def arrow_rows(store: Store, batch: int, partition: int) -> pa.RecordBatch:
    keys, batches = zip(*source_rows(store, batch, partition), strict=True)
    columns = {"id": pa.array(keys, pa.int64()), "batch": pa.array(batches, pa.int32())}
    return pa.RecordBatch.from_pydict(columns)


class MemoryCase(Store):
    def __init__(self, fixtures: Fixtures, folder: Path) -> None:
        super().__init__()
        self._memory = MemoryStore()

    def sink(self, table: str) -> MemoryParticipant:
        return self._memory.participant(table)

    def rows(self, table: str) -> list[Row]:
        return [(row["id"], row["batch"]) for row in self._memory.rows(table)]

    def leftovers(self) -> int:
        return len(self._memory.prepared)

    def prepare_foreign(self) -> Callable[[], None]:
        self._memory.prepared["somebody else's"] = ("other", pa.table({}))
        return lambda: self._memory.prepared.pop("somebody else's") and None

    def close(self) -> None:
        self._memory.close()


class FileCase(Store):
    branchwise = False

    def __init__(self, fixtures: Fixtures, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def sink(self, table: str) -> FileParticipant:
        return FileParticipant(self._folder / table)

    def rows(self, table: str) -> list[Row]:
        pieces = [pq.read_table(path) for path in published_files(self._folder / table)]
        return [(row["id"], row["batch"]) for piece in pieces for row in piece.to_pylist()]

    def leftovers(self) -> int:
        published = {path for table in self.tables for path in published_files(self._folder / table)}
        data = {path for table in self.tables for path in (self._folder / table / "_data").iterdir()}
        marks = [path for table in self.tables for path in (self._folder / table / "_prepared").iterdir()]
        return len(marks) + len(data - published - {mark for mark in data if self._marked(mark)})

    def _marked(self, path: Path) -> bool:
        """A file whose mark is counted already."""
        return (path.parent.parent / "_prepared" / path.stem).exists()

    def prepare_foreign(self) -> Callable[[], None]:
        mark = self._folder / self.tables[0] / "_prepared" / "somebody.else"
        mark.touch()
        return mark.unlink


class SqliteCase(Store):
    def __init__(self, fixtures: Fixtures, folder: Path) -> None:
        super().__init__()
        self._path = folder / "store.sqlite"
        self._execute("CREATE TABLE staged (branch PRIMARY KEY, target, rows)")
        for table in self.tables:
            self._execute(f"CREATE TABLE {table} (id INTEGER, batch INTEGER)")

    def sink(self, table: str) -> SqliteParticipant:
        return SqliteParticipant(str(self._path), table)

    def rows(self, table: str) -> list[Row]:
        with closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(f"SELECT id, batch FROM {table}").fetchall()

    def leftovers(self) -> int:
        with closing(sqlite3.connect(self._path)) as connection:
            return int(connection.execute("SELECT count(*) FROM staged").fetchone()[0])

    def prepare_foreign(self) -> Callable[[], None]:
        self._execute("INSERT INTO staged VALUES ('somebody', 'else', '[]')")
        return lambda: self._execute("DELETE FROM staged WHERE branch = 'somebody'")

    def _execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute(statement)


class PostgresCase(Store):
    mode = "append"
    words = MappingProxyType(
        {"prepare": b"PREPARE TRANSACTION", "commit": b"COMMIT PREPARED", "abort": b"ROLLBACK PREPARED"}
    )
    server_fixture = "postgres"

    def __init__(self, fixtures: Fixtures, folder: Path) -> None:
        super().__init__()
        server: Postgres = fixtures(self.server_fixture)
        self.server: Postgres = server
        self.port = server.port
        key = "PRIMARY KEY" if self.keeps_keys else ""
        with server.connect() as connection:
            for table in self.tables:
                connection.execute(f"CREATE TABLE {table} (id bigint {key}, batch int)")

    def sink(self, table: str) -> Participant:
        keys = ["id"] if self.keeps_keys else []
        dsn = self.server.dsn_at(self.port)
        return postgres_participant(dsn, table=table, mode=self.mode, keys=keys, lock_timeout_ms=5_000)

    def rows(self, table: str) -> list[Row]:
        with self.server.connect() as connection:
            return connection.execute(f"SELECT id, batch FROM {table}").fetchall()  # type: ignore[return-value]

    def leftovers(self) -> int:
        staged = "SELECT count(*) FROM pg_class WHERE relname ~ '^sparkonce' AND relkind = 'r' AND relname !~ 'batches'"
        with self.server.connect() as connection:
            found = connection.execute(f"SELECT (SELECT count(*) FROM pg_prepared_xacts) + ({staged})").fetchone()
        assert found is not None
        return int(str(found[0]))

    def prepare_foreign(self) -> Callable[[], None]:
        with self.server.connect() as connection:
            connection.execute(f"BEGIN; INSERT INTO {self.tables[0]} VALUES (-1, -1); PREPARE TRANSACTION 'foreign'")
        return lambda: self._execute("ROLLBACK PREPARED 'foreign'")

    def _execute(self, statement: str) -> None:
        with self.server.connect() as connection:
            connection.execute(statement)


class PostgresUpsertCase(PostgresCase):
    mode = "upsert"
    keeps_keys = True


class PostgresIdempotentCase(PostgresCase):
    """On a server without prepared transactions, for which it is made."""

    mode = "idempotent"
    server_fixture = "postgres_as_installed"
    branchwise = False
    words = MappingProxyType({"prepare": b"COMMIT\0", "commit": b"COMMIT\0", "abort": b"DROP TABLE"})

    def prepare_foreign(self) -> Callable[[], None]:
        self._execute("CREATE TABLE sparkonce_foreign ()")
        return lambda: self._execute("DROP TABLE sparkonce_foreign")


class MariaDBCase(Store):
    mode = "append"
    words = MappingProxyType({"prepare": b"XA PREPARE", "commit": b"XA COMMIT", "abort": b"XA ROLLBACK"})

    def __init__(self, fixtures: Fixtures, folder: Path) -> None:
        super().__init__()
        server: MariaDB = fixtures("mariadb")
        self.server: MariaDB = server
        self.port = server.port
        key = "PRIMARY KEY" if self.keeps_keys else ""
        for table in self.tables:
            self._execute(f"CREATE TABLE {table} (id bigint {key}, batch int)")

    def sink(self, table: str) -> Participant:
        keys = ["id"] if self.keeps_keys else []
        url = f"mariadb://root@127.0.0.1:{self.port}/{self.server.database}?ssl_disabled=true"
        return mariadb_participant(url, table=table, mode=self.mode, keys=keys, lock_timeout_ms=5_000)

    def rows(self, table: str) -> list[Row]:
        return self._execute(f"SELECT id, batch FROM {table}")  # type: ignore[return-value]

    def leftovers(self) -> int:
        tables = self._execute("SHOW TABLES LIKE 'sparkonce%'")
        return len(self._execute("XA RECOVER")) + len([name for name in tables if name != ("sparkonce_batches",)])

    def prepare_foreign(self) -> Callable[[], None]:
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            for statement in ("START", f"INSERT INTO {self.tables[0]} VALUES (-1, -1)", "END", "PREPARE"):
                cursor.execute(f"XA {statement} 'foreign'" if " " not in statement else statement)
        return lambda: self._execute("XA ROLLBACK 'foreign'").clear()

    def _execute(self, statement: str) -> list[tuple[object, ...]]:
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


class MariaDBUpsertCase(MariaDBCase):
    locks_while_writing = True
    mode = "upsert"
    keeps_keys = True


class MariaDBIdempotentCase(MariaDBCase):
    mode = "idempotent"
    branchwise = False
    words = MappingProxyType({"prepare": b"\3COMMIT", "commit": b"\3COMMIT", "abort": b"DROP TABLE"})

    def prepare_foreign(self) -> Callable[[], None]:
        self._execute("CREATE TABLE sparkonce_foreign (a int)")
        return lambda: self._execute("DROP TABLE sparkonce_foreign").clear()


STORES: dict[str, Callable[[Fixtures, Path], Store]] = {
    "memory": MemoryCase,
    "files": FileCase,
    "sqlite": SqliteCase,
    "postgres": PostgresCase,
    "postgres-upsert": PostgresUpsertCase,
    "postgres-idempotent": PostgresIdempotentCase,
    "mariadb": MariaDBCase,
    "mariadb-upsert": MariaDBUpsertCase,
    "mariadb-idempotent": MariaDBIdempotentCase,
}

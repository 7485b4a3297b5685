"""What both ways of writing to MariaDB share: the description, the checks, and the load."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pymysql

from sparkonce.errors import UsageError
from sparkonce.participants.columns import require_columns, require_unique
from sparkonce.participants.mariadb.connection import connected, parse_url
from sparkonce.participants.mariadb.rows import insert_head, insert_values, upsert_tail
from sparkonce.participants.mariadb.table import fits, read_table
from sparkonce.participants.modes import DatabaseTable

_OLDEST = {"MariaDB": (10, 5), "MySQL": (8, 0)}
"""Before these a prepared branch is rolled back when its connection ends."""


@dataclass(frozen=True, kw_only=True)
class MariaDBTable(DatabaseTable):
    """A table of a MariaDB or MySQL database."""

    url: str = field(repr=False)

    @property
    def name(self) -> str:
        """As `Participant` says: database and table, since a server's address may change."""
        return self.given_name or f"mariadb {parse_url(self.url)['database']} {self.table}"

    def check(self, schema: pa.Schema) -> None:
        """As `Participant` says."""
        with connected(self.url, f"looking at {self.table}") as connection:
            shape = read_table(connection, self.table)
        require_columns(self.table, schema, shape.columns, fits, self.keys)
        if self.keys:
            require_unique(self.table, self.keys, shape.unique)


def insert_rows(connection: pymysql.Connection, table: str, arrow_batch: pa.RecordBatch, keys: Sequence[str]) -> None:
    """Loads rows into a table."""
    columns = arrow_batch.schema.names
    head, tail = insert_head(table, columns), upsert_tail(columns, keys)
    with connection.cursor() as cursor:
        for values in insert_values(arrow_batch):
            cursor.execute(head + values + tail)


def require_version(version: str) -> None:
    """UsageError if the server forgets prepared branches. `version` is what `SELECT VERSION()` gives."""
    product = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    found = re.match(r"(\d+)\.(\d+)", version)
    oldest = _OLDEST[product]
    if found is None or (int(found[1]), int(found[2])) < oldest:
        raise UsageError(
            f"this is {product} {version}: before {oldest[0]}.{oldest[1]} a prepared branch is lost when its "
            f"connection ends. Upgrade the server, or use mode='idempotent', which needs no XA"
        )

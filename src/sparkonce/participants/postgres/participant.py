"""What both ways of writing to PostgreSQL share: the description, and the checks before any row moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict

from sparkonce.participants.columns import require_columns, require_unique
from sparkonce.participants.modes import DatabaseTable
from sparkonce.participants.postgres.connection import connected
from sparkonce.participants.postgres.table import fits, read_table, require_schema


@dataclass(frozen=True, kw_only=True)
class PostgresTable(DatabaseTable):
    """A table of a PostgreSQL database."""

    dsn: str = field(repr=False)

    @property
    def name(self) -> str:
        """As `Participant` says: database and table, since a server's address may change."""
        return self.given_name or f"postgres {conninfo_to_dict(self.dsn).get('dbname', '')} {self.table}"

    @property
    def makes_tables(self) -> bool:
        """Whether rows wait in tables of their own before they are moved on."""
        return bool(self.keys)

    def check(self, schema: pa.Schema) -> None:
        """As `Participant` says."""
        privileges = "INSERT, SELECT, UPDATE" if self.keys else "INSERT"
        with connected(self.dsn, f"looking at {self.table}") as connection:
            shape = read_table(connection, self.table, privileges)
            if self.makes_tables:
                require_schema(connection, self.table)
        require_columns(self.table, schema, shape.columns, fits, self.keys)
        if self.keys:
            require_unique(self.table, self.keys, shape.unique)

"""From the options that users give to a participant."""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.participants.modes import LOCK_TIMEOUT_MS, require_mode
from sparkonce.participants.postgres.prepared import PostgresPrepared
from sparkonce.participants.postgres.staged import PostgresStaged


def postgres_participant(
    dsn: str,
    *,
    table: str,
    mode: str = "append",
    keys: Sequence[str] = (),
    name: str | None = None,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> PostgresPrepared | PostgresStaged:
    """A table of PostgreSQL as a sink. Idempotent means without prepared transactions, with keys an upsert."""
    require_mode(mode, keys)
    kind = PostgresStaged if mode == "idempotent" else PostgresPrepared
    return kind(dsn=dsn, table=table, keys=tuple(keys), given_name=name, lock_timeout_ms=lock_timeout_ms)

"""From the options that users give to a participant."""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.participants.mariadb.staged import MariaDBStaged
from sparkonce.participants.mariadb.xa import MariaDBPrepared
from sparkonce.participants.modes import LOCK_TIMEOUT_MS, require_mode


def mariadb_participant(
    url: str,
    *,
    table: str,
    mode: str = "append",
    keys: Sequence[str] = (),
    name: str | None = None,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> MariaDBPrepared | MariaDBStaged:
    """A table of MariaDB or MySQL as a sink. Idempotent means without XA, with keys an upsert."""
    require_mode(mode, keys)
    kind = MariaDBStaged if mode == "idempotent" else MariaDBPrepared
    return kind(url=url, table=table, keys=tuple(keys), given_name=name, lock_timeout_ms=lock_timeout_ms)

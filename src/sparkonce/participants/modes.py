"""What a sink in a table is, the same for every database: its description and its modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkonce.commit import Participant
from sparkonce.errors import UsageError

MODES = ("append", "upsert", "idempotent")
LOCK_TIMEOUT_MS = 30_000


@dataclass(frozen=True, kw_only=True)
class DatabaseTable(Participant):
    """A table of a database; with keys, rows are put in the place of those with the same keys."""

    table: str
    keys: tuple[str, ...] = ()
    given_name: str | None = None
    lock_timeout_ms: int = LOCK_TIMEOUT_MS
    """How long a task waits for a row that another transaction holds, before its micro-batch is run again."""


def require_mode(mode: str, keys: Sequence[str]) -> None:
    """UsageError if the mode is unknown or does not go with the keys."""
    if isinstance(keys, str):
        raise UsageError(f"keys={keys!r} must be a list of column names, for example keys=[{keys!r}]")
    if mode not in MODES:
        raise UsageError(f"mode={mode!r} is not known; choose one of {', '.join(MODES)}")
    if mode == "upsert" and not keys:
        raise UsageError("mode='upsert' needs keys=[…]: the columns by which a row is found")
    if mode == "append" and keys:
        raise UsageError("mode='append' has no use for keys; use mode='upsert', or leave them out")

"""The modes of a table sink, the same for every database."""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.errors import UsageError

MODES = ("append", "upsert", "idempotent")


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

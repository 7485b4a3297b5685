"""Writes Spark's offset log anew: the one place that changes a checkpoint. What was there before is kept beside it.

Hadoop keeps a checksum of each file in a hidden one, `.7.crc`, and refuses a file that does not fit; without one it
reads the file as it is. So the checksum is removed first. A crash between two steps leaves the log as it was, or with
the planned micro-batch removed, which is as if it had never been planned.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from sparkonce.commit import sync_folder
from sparkonce.errors import UsageError
from sparkonce.fetch.checkpoint import OFFSETS, read_batch
from sparkonce.ops.offset_changes import CheckpointChange

KEPT = Path("sparkonce") / "replaced-offsets"
"""Where replaced entries are kept, below the checkpoint."""


def apply_change(folder: Path, change: CheckpointChange) -> Path:
    """Does it, and gives the folder where the old entries are."""
    try:
        return _apply(folder, change)
    except OSError as error:
        raise UsageError(f"the checkpoint {folder} cannot be written: {error.strerror}") from error


def _apply(folder: Path, change: CheckpointChange) -> Path:
    _require_unchanged(folder, change)
    kept = folder / KEPT / time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    kept.mkdir(parents=True, exist_ok=True)
    (kept / str(change.entry.batch_id)).write_text(change.entry.text, encoding="utf-8")
    if change.drop is not None:
        (kept / str(change.drop.batch_id)).write_text(change.drop.text, encoding="utf-8")
        _remove(folder / OFFSETS, change.drop.batch_id)
    _replace(folder / OFFSETS, change.entry.batch_id, change.text)
    return kept


def _require_unchanged(folder: Path, change: CheckpointChange) -> None:
    """The last look before the first step."""
    newest = change.drop or change.entry
    if read_batch(folder, newest.batch_id) != newest or (folder / OFFSETS / str(newest.batch_id + 1)).exists():
        raise UsageError("the checkpoint has changed meanwhile: the query runs. Nothing was changed")


def _remove(log: Path, batch_id: int) -> None:
    (log / str(batch_id)).unlink()
    (log / f".{batch_id}.crc").unlink(missing_ok=True)
    sync_folder(log)


def _replace(log: Path, batch_id: int, text: str) -> None:
    draft = log / f".{batch_id}.{os.getpid()}.draft"
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        (log / f".{batch_id}.crc").unlink(missing_ok=True)
        draft.replace(log / str(batch_id))
        sync_folder(log)
    finally:
        draft.unlink(missing_ok=True)

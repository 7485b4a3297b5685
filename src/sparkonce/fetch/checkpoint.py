"""Spark's checkpoint on a local folder, read as plain files: which query, what is planned, what is committed.

    metadata        {"id": "<query id>"}
    offsets/<n>     written before micro-batch n runs: version, metadata, one line a source with its end offsets
    commits/<n>     written after it
    state/          there if the query keeps state

A micro-batch that is in offsets and not in commits runs again at the next start, with the same end offsets. A
checkpoint elsewhere, in HDFS or an object store, can only be read by what Spark reads it with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sparkonce.errors import UsageError
from sparkonce.fetch.progress import Progress, progress_from_json
from sparkonce.model import TopicPartition

OFFSETS, COMMITS, STATE = "offsets", "commits", "state"
LOG_VERSION = "v1"
_NO_OFFSET = "-"


def offsets_digest(sources: Iterable[str]) -> str:
    """Tells two plans of a micro-batch with the same number apart."""
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A micro-batch in Spark's offset log."""

    batch_id: int
    planned_ms: int
    sources: tuple[str, ...]
    """The end offsets of each source, as the source wrote them."""
    text: str = field(repr=False)

    @property
    def digest(self) -> str:
        """What the marker in Kafka says of its offsets."""
        return offsets_digest(self.sources)

    def progress(self) -> Progress | None:
        """How far the Kafka source is; None if the query has none, or several."""
        found = [progress for source in self.sources if (progress := _progress(source)) is not None]
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint as it was read. `planned` is the same as `committed`, or the one after it."""

    folder: Path
    query_id: str | None = None
    planned: LoggedBatch | None = None
    committed: LoggedBatch | None = None
    stateful: bool = False

    @property
    def is_new(self) -> bool:
        """Whether no micro-batch was ever planned."""
        return self.planned is None

    @property
    def unfinished(self) -> LoggedBatch | None:
        """The micro-batch that is planned and not committed, if there is one."""
        return self.planned if self.planned != self.committed else None

    def next_start(self) -> Mapping[TopicPartition, int]:
        """From where the source reads at the next start: what the newest committed micro-batch ended with."""
        progress = self.committed.progress() if self.committed is not None else None
        return progress.end if progress is not None else {}


def local_folder(address: str) -> Path:
    """The folder of a checkpoint; UsageError if it is on another filesystem."""
    parts = urlsplit(address)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        raise UsageError(
            f"the checkpoint {address} is not on a local folder; only Spark can read {parts.scheme}: there. Look at "
            f"the query where it runs: its status line and Spark's own progress show how far it is"
        )
    return Path(unquote(parts.path) if parts.scheme == "file" else address)


def read_checkpoint(address: str) -> Checkpoint:
    """Reads it; one that does not exist is that of a query that never ran."""
    folder = local_folder(address)
    try:
        return _read(folder)
    except OSError as error:
        raise UsageError(f"the checkpoint {folder} cannot be read: {error.strerror}") from error


def _read(folder: Path) -> Checkpoint:
    # Commits first: a micro-batch that is committed meanwhile then looks unfinished, never the other way round.
    commits, offsets = numbers_in(folder / COMMITS), numbers_in(folder / OFFSETS)
    planned = max(offsets, default=None)
    committed = max((number for number in commits if number in offsets), default=None)
    return Checkpoint(
        folder,
        _query_id(folder / "metadata"),
        None if planned is None else read_batch(folder, planned),
        None if committed is None else read_batch(folder, committed),
        (folder / STATE).is_dir(),
    )


def numbers_in(log: Path) -> set[int]:
    """The micro-batches in one of Spark's logs."""
    return {int(path.name) for path in log.iterdir() if path.name.isdecimal()} if log.is_dir() else set()


def read_batch(folder: Path, batch_id: int) -> LoggedBatch:
    """One entry of the offset log."""
    return parse_batch(batch_id, (folder / OFFSETS / str(batch_id)).read_text(encoding="utf-8"))


def parse_batch(batch_id: int, text: str) -> LoggedBatch:
    """Three or more lines: the version, the micro-batch's metadata, and one line a source."""
    version, *lines = text.rstrip("\n").split("\n")
    if version != LOG_VERSION:
        raise UsageError(f"Spark's offset log has version {version!r}, sparkonce knows {LOG_VERSION!r}")
    try:
        planned_ms = int(json.loads(lines[0])["batchTimestampMs"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"entry {batch_id} of Spark's offset log cannot be read") from error
    return LoggedBatch(batch_id, planned_ms, tuple(line for line in lines[1:] if line != _NO_OFFSET), text)


def _query_id(file: Path) -> str | None:
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))["id"]
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{file} does not say which query this is: it was not written by Spark") from error
    return str(found)


def _progress(source: str) -> Progress | None:
    """None for a source of another kind."""
    try:
        value = json.loads(source)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("version"), int):
        return progress_from_json(value)
    try:
        return progress_from_json(value)
    except UsageError:
        return None


def fingerprint(folder: Path) -> tuple[int, int]:
    """Changes with every micro-batch that is planned or committed."""
    return max(numbers_in(folder / OFFSETS), default=-1), max(numbers_in(folder / COMMITS), default=-1)

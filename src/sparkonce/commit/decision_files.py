"""The decision in files beside Spark's checkpoint: a numbered log of which only the newest entry counts.

    <folder>/7      {"version": 1, "query": …, "owner": …, "token": …, "decided": {"batch_id": 12, "epoch": 5242881, …}}

An entry is created whole or not at all, and never replaced: of two drivers that write number 8, one fails. To claim is
to write the next number with the decision as it was; to decide is to write the next number with the new one. A driver
that was replaced still holds an older number, finds the next one taken, and knows that it is fenced.

Old entries are removed, so the next number of a driver that slept very long may be free again. It therefore looks after
each write whether a higher number exists, and a reader takes the highest: an entry that came too late never counts.

An epoch is the number of the entry that the driver holds, which no other driver can hold, and a count of runs since.
"""

from __future__ import annotations

import json
import os
import uuid
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparkonce.commit.branch import query_digest
from sparkonce.commit.decision import Decision, DecisionStore
from sparkonce.commit.owner import here
from sparkonce.errors import AbortableError, FencedError, InDoubtError, UsageError

VERSION = 1
KEPT_ENTRIES = 10
RUN_BITS = 20
"""So many runs without a decision fit between two entries."""
_ROUNDS = 20


class Folder(ABC):
    """The little that is asked of a filesystem; Spark's own can be put behind it."""

    @abstractmethod
    def names(self) -> list[str]:
        """The files in it; none if it does not exist yet."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """FileNotFoundError if it is gone."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> None:
        """Whole or not at all, durable when it returns; FileExistsError if the name is taken."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Missing is fine."""


@dataclass(frozen=True, slots=True)
class LocalFolder(Folder):
    """A folder of a local or mounted filesystem that has hard links."""

    path: Path

    def names(self) -> list[str]:
        """As `Folder` says."""
        return [path.name for path in self.path.iterdir()] if self.path.is_dir() else []

    def read(self, name: str) -> bytes:
        """As `Folder` says."""
        return (self.path / name).read_bytes()

    def create(self, name: str, data: bytes) -> None:
        """A link to a finished file: unlike a rename it fails if the name is taken."""
        self.path.mkdir(parents=True, exist_ok=True)
        draft = self.path / f".{name}.{uuid.uuid4().hex}"
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, self.path / name)
            sync_folder(self.path)
        finally:
            draft.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        """As `Folder` says."""
        (self.path / name).unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Makes names that were just given last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    query: str
    owner: str
    token: str
    """Tells this write from every other one."""
    decided: Decision | None


class FileDecisions(DecisionStore):
    """The decisions of one query in one folder."""

    def __init__(self, folder: Folder, query_id: str) -> None:
        self._folder = folder
        self._query = query_digest(query_id)
        self._held: _Entry | None = None
        self._runs = 0

    def claim(self) -> Decision | None:
        """As `DecisionStore` says."""
        for _ in range(_ROUNDS):
            newest = self._newest()
            entry = self._next(newest, newest.decided if newest else None)
            if self._append(entry):
                return entry.decided
        raise AbortableError(f"other drivers keep claiming the decisions in {self._folder}; run the query once")

    def require_claim(self) -> None:
        """As `DecisionStore` says."""
        if max(self._numbers(), default=0) != self._mine().number:
            raise self._fenced()

    def new_epoch(self) -> int:
        """As `DecisionStore` says."""
        self._runs += 1
        if self._runs >> RUN_BITS:
            raise AbortableError(f"{self._runs:,} runs without a decision; start the query again")
        return self._mine().number << RUN_BITS | self._runs

    def record(self, decision: Decision) -> None:
        """As `DecisionStore` says."""
        if not self._append(self._next(self._mine(), decision)):
            raise self._fenced()

    def _mine(self) -> _Entry:
        if self._held is None:
            raise RuntimeError("the decisions were not claimed")
        return self._held

    def _next(self, before: _Entry | None, decided: Decision | None) -> _Entry:
        return _Entry(before.number + 1 if before else 1, self._query, here(), uuid.uuid4().hex, decided)

    def _append(self, entry: _Entry) -> bool:
        """Whether the entry is the newest one now; False if another driver was first."""
        name = str(entry.number)
        try:
            self._folder.create(name, _format(entry))
        except FileExistsError:
            # A filesystem that asks again after a lost answer meets its own entry.
            if self._folder.read(name) != _format(entry):
                return False
        except OSError as error:
            raise InDoubtError(
                f"decision {name} could not be written to {self._folder}; whether it will last is unknown: {error}. "
                f"Nothing is lost: when the query is started again, the newest entry decides"
            ) from error
        numbers = self._numbers()
        if max(numbers) != entry.number:
            return False
        self._held, self._runs = entry, 0
        for number in numbers:
            if number <= entry.number - KEPT_ENTRIES:
                self._folder.delete(str(number))
        return True

    def _numbers(self) -> list[int]:
        return [int(name) for name in self._folder.names() if name.isdecimal()]

    def _newest(self) -> _Entry | None:
        for _ in range(_ROUNDS):
            numbers = self._numbers()
            if not numbers:
                return None
            try:
                return self._parse(max(numbers))
            except FileNotFoundError:
                continue  # Others have gone on so far that it was removed.
        raise AbortableError(f"the decisions in {self._folder} change faster than they can be read")

    def _parse(self, number: int) -> _Entry:
        entry = _parse(number, self._folder.read(str(number)), self._folder)
        if entry.query != self._query:
            raise UsageError(
                f"the decisions in {self._folder} belong to another query: the checkpoint was copied. "
                f"Give this query a new checkpoint"
            )
        return entry

    def _fenced(self) -> FencedError:
        newest = self._newest()
        return FencedError(
            f"the query was taken over by {newest.owner if newest else 'nobody known'}; this driver ({here()}) stops "
            f"and has decided nothing since. Run one query per checkpoint"
        )


def _format(entry: _Entry) -> bytes:
    fields = {"version": VERSION, **asdict(entry)}
    del fields["number"]
    return json.dumps(fields, separators=(",", ":")).encode()


def _parse(number: int, data: bytes, folder: Folder) -> _Entry:
    try:
        fields: dict[str, Any] = json.loads(data)
        version = fields.pop("version")
        if version != VERSION:
            raise UsageError(
                f"decision {number} in {folder} has version {version}, this sparkonce knows {VERSION}; "
                f"run the version that wrote it, or a later one"
            )
        decided = fields.pop("decided")
        return _Entry(number=number, decided=Decision(**decided) if decided else None, **fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"decision {number} in {folder} was not written by sparkonce, or is damaged") from error

"""Files of a folder, published by manifests: who reads the manifests sees whole micro-batches, or nothing of them.

    <path>/_data/<branch>.parquet           rows; nobody looks at them before a manifest names them
    <path>/_prepared/<branch>               a mark from begin to commit or abort: how leftovers are found
    <path>/_manifest/<query>.<batch>.json   {"version": 1, "files": ["….parquet", …], …}

A manifest appears whole and once (`LocalFolder.create`), so a micro-batch does too. Names begin with an underscore,
which Spark, Hive and Arrow skip: a reader that does not know the manifests sees no rows instead of wrong ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkonce.commit import Branch, BranchWriter, Handle, LocalFolder, Participant, leftovers, sync_folder
from sparkonce.errors import AbortableError, InDoubtError, RetriableError, UsageError

VERSION = 1
FORMATS = {"parquet": pq.ParquetWriter, "arrow": pa.ipc.new_file}
_SLASH = "~"
"""Stands for the slash of a branch's name in the name of a file."""


@dataclass(frozen=True)
class FileParticipant(Participant):
    """A folder of a local or mounted filesystem that all tasks and the driver see."""

    path: Path
    format: str = "parquet"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise UsageError(f"format={self.format!r} is not known; choose one of {', '.join(FORMATS)}")

    @property
    def name(self) -> str:
        """As `Participant` says."""
        return f"files {self.path}"

    def preflight(self, branches: int) -> None:  # noqa: ARG002  Any number of files will do.
        """As `Participant` says."""
        try:
            for folder in (self.data, self.prepared, self.manifests):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the folder {self.path} cannot be made: {error}") from error

    @property
    def data(self) -> Path:
        """Where rows are."""
        return self.path / "_data"

    @property
    def prepared(self) -> Path:
        """Where marks are."""
        return self.path / "_prepared"

    @property
    def manifests(self) -> Path:
        """What readers read."""
        return self.path / "_manifest"

    def data_file(self, branch: Branch) -> Path:
        """The rows of one branch."""
        return self.data / f"{_file_name(branch)}.{self.format}"

    def mark(self, branch: Branch) -> Path:
        """There while the branch is neither committed nor aborted."""
        return self.prepared / _file_name(branch)

    def begin(self, branch: Branch, schema: pa.Schema) -> BranchWriter:
        """As `Participant` says."""
        return _FileWriter(self, branch, schema)

    def commit(self, handles: Sequence[Handle]) -> None:
        """Publishes all of them by one manifest, then removes their marks."""
        if not handles:
            return
        files = sorted(self.data_file(handle.branch).name for handle in handles)
        some = handles[0].branch
        manifest = {"version": VERSION, "batch_id": some.batch_id, "epoch": some.epoch, "files": files}
        try:
            with suppress(FileExistsError):
                name = _manifest_name(some)
                LocalFolder(self.manifests).create(name, json.dumps(manifest, separators=(",", ":")).encode())
            self._require_published(some, files)
            for handle in handles:
                self.mark(handle.branch).unlink(missing_ok=True)
        except OSError as error:
            raise RetriableError(f"batch {some.batch_id} could not be published in {self.path}: {error}") from error

    def abort(self, handles: Sequence[Handle]) -> None:
        """Removes rows, then marks."""
        try:
            for handle in handles:
                self.data_file(handle.branch).unlink(missing_ok=True)
                self.mark(handle.branch).unlink(missing_ok=True)
        except OSError as error:
            raise RetriableError(f"staged files in {self.path} could not be removed: {error}") from error

    def in_doubt(self, query: str) -> list[Handle]:
        """As `Participant` says. Also what was begun and not finished: its run will not be decided any more."""
        try:
            names = [path.name for path in self.prepared.iterdir()] if self.prepared.is_dir() else []
        except OSError as error:
            raise RetriableError(f"the folder {self.prepared} cannot be read: {error}") from error
        return leftovers((name.replace(_SLASH, "/") for name in names), query)

    def _require_published(self, branch: Branch, files: list[str]) -> None:
        """The manifest may be older than this call; a file that it does not name would be lost."""
        published = set(_read(self.manifests / _manifest_name(branch))["files"])
        if not published.issuperset(files):
            raise InDoubtError(
                f"batch {branch.batch_id} is published in {self.path} without {sorted(set(files) - published)}; "
                f"nothing was changed. Find out who else writes to this folder"
            )


class _FileWriter(BranchWriter):
    def __init__(self, sink: FileParticipant, branch: Branch, schema: pa.Schema) -> None:
        self._mark, self._path = sink.mark(branch), sink.data_file(branch)
        self._writer: Any = None
        try:
            self._mark.touch(exist_ok=False)
            sync_folder(sink.prepared)
            self._file = self._path.open("xb")
        except OSError as error:
            raise _lost(self._path, error) from error
        self._writer = FORMATS[sink.format](self._file, schema)

    def write(self, arrow_batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(arrow_batch)
        except OSError as error:
            raise _lost(self._path, error) from error

    def pre_commit(self) -> None:
        try:
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            sync_folder(self._path.parent)
        except OSError as error:
            raise _lost(self._path, error) from error
        if not self._mark.exists():
            raise AbortableError(f"{self._path} was rolled back while it was being written: its run is over")

    def discard(self) -> None:
        with suppress(Exception):  # What is left is found by its mark.
            self._writer.close()
        with suppress(OSError):
            self._file.close()
            self._path.unlink(missing_ok=True)
            self._mark.unlink(missing_ok=True)


def published_batches(path: str | Path) -> dict[tuple[str, int], list[Path]]:
    """The files of every published micro-batch, by query and number."""
    folder = Path(path)
    found: dict[tuple[str, int], list[Path]] = {}
    for manifest in (folder / "_manifest").glob("*.json"):
        query, batch_id, _ = manifest.name.split(".")
        found[query, int(batch_id)] = [folder / "_data" / name for name in _read(manifest)["files"]]
    return dict(sorted(found.items()))


def published_files(path: str | Path) -> list[Path]:
    """All published files, for example for `spark.read.parquet(*map(str, published_files(path)))`."""
    return [file for files in published_batches(path).values() for file in files]


def _file_name(branch: Branch) -> str:
    return branch.name.replace("/", _SLASH)


def _manifest_name(branch: Branch) -> str:
    return f"{branch.query}.{branch.batch_id}.json"


def _read(manifest: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(manifest.read_bytes())
    if fields.get("version") != VERSION:
        raise UsageError(
            f"{manifest} has version {fields.get('version')}, this sparkonce knows {VERSION}; "
            f"read it with the version that wrote it, or a later one"
        )
    return fields


def _lost(path: Path, error: OSError) -> AbortableError:
    return AbortableError(f"{path} could not be written: {error}; nothing of it is visible")

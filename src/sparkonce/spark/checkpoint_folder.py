"""A folder below Spark's checkpoint, on any filesystem that Spark can reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from sparkonce.commit import Folder, LocalFolder

_EXISTS = "FileAlreadyExistsException"
_MISSING = "FileNotFoundException"


def checkpoint_folder(spark: SparkSession, address: str) -> Folder:
    """Local folders by hard links, which cannot replace a file; all others as Spark itself does it."""
    parts = urlsplit(address)
    if parts.scheme in ("", "file"):
        return LocalFolder(Path(unquote(parts.path)))
    return SparkFolder(spark, address)


@dataclass(frozen=True, slots=True)
class SparkFolder(Folder):
    """By what Spark writes its own logs with (spark.sql.streaming.checkpointFileManagerClass): as safe as they are."""

    spark: SparkSession = field(repr=False)
    address: str

    def names(self) -> list[str]:
        """As `Folder` says."""
        with self._manager() as manager:
            if not manager.exists(self._path()):
                return []
            return [str(status.getPath().getName()) for status in manager.list(self._path())]

    def read(self, name: str) -> bytes:
        """As `Folder` says."""
        with self._manager() as manager:
            stream = manager.open(self._path(name))
            try:
                return bytes(self._java().org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def create(self, name: str, data: bytes) -> None:
        """As `Folder` says."""
        with self._manager() as manager:
            manager.mkdirs(self._path())
            stream = manager.createAtomic(self._path(name), False)  # noqa: FBT003  Java has no names.
            try:
                stream.write(data)
            except BaseException:
                stream.cancel()
                raise
            stream.close()

    def delete(self, name: str) -> None:
        """As `Folder` says."""
        with self._manager() as manager:
            manager.delete(self._path(name))

    def _java(self) -> Any:
        return self.spark.sparkContext._jvm

    def _path(self, name: str | None = None) -> Any:
        return self._java().org.apache.hadoop.fs.Path(self.address if name is None else f"{self.address}/{name}")

    @contextmanager
    def _manager(self) -> Iterator[Any]:
        """Errors of Java become Python's."""
        package = self._java().org.apache.spark.sql.execution.streaming.checkpointing
        conf = self.spark._jsparkSession.sessionState().newHadoopConf()
        try:
            yield package.CheckpointFileManager.create(self._path(), conf)
        except Py4JJavaError as error:
            text = str(error.java_exception)
            kind = FileExistsError if _EXISTS in text else FileNotFoundError if _MISSING in text else OSError
            raise kind(text) from error

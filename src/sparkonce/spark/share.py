"""What one sending task has to send, taken in whole: in memory, and beyond that in a file that has no name."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import IO

import pyarrow as pa

from sparkonce.model import TopicPartition
from sparkonce.spark.shuffled import MANIFEST_CHUNK, Frame

HELD_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, order=True)
class _Batch:
    """An encoded batch and its place in the order of sending: in memory, or at a position of the file."""

    origin: int
    chunk: int
    held: memoryview | None = field(compare=False)
    position: int = field(compare=False, default=0)
    size: int = field(compare=False, default=0)


class Share:
    """The batches of a task's partitions. `read_share` makes one."""

    def __init__(self, overflow: IO[bytes], held_bytes_max: int) -> None:
        self.encoders: dict[int, int] = {}
        """Spark partition → task attempt that encoded it."""
        self.expected: Counter[TopicPartition] = Counter()
        """How many records were encoded for each partition."""
        self._batches: dict[TopicPartition, list[_Batch]] = defaultdict(list)
        self._overflow = overflow
        self._room = held_bytes_max

    @property
    def partitions(self) -> list[TopicPartition]:
        """All that there is something for, by the manifests or by the batches."""
        return sorted(self.expected.keys() | self._batches.keys())

    def take(self, arrow_batch: pa.RecordBatch) -> None:
        """Takes rows of the encoding stage, in any order."""
        # One row is one record batch of up to a megabyte, so this is not a loop over records.
        for cell in arrow_batch["frame"]:
            frame = Frame.read(memoryview(cell.as_buffer()))
            if frame.chunk == MANIFEST_CHUNK:
                self._take_manifest(bytes(frame.batch))
            else:
                self._batches[frame.partition].append(self._stored(frame))

    def batches(self) -> Iterator[tuple[TopicPartition, bytes | memoryview]]:
        """All batches: those of a partition in their order, partitions in turns, so that all leaders are busy."""
        lanes = [[(partition, batch) for batch in sorted(self._batches[partition])] for partition in self._batches]
        for round_of_all in zip_longest(*lanes):
            for partition, batch in filter(None, round_of_all):
                yield partition, self._loaded(batch)

    def _take_manifest(self, text: bytes) -> None:
        manifest = json.loads(text)
        self.encoders[manifest["origin"]] = manifest["attempt"]
        for topic, partition, records in manifest["records"]:
            self.expected[TopicPartition(topic, partition)] += records

    def _stored(self, frame: Frame) -> _Batch:
        size = len(frame.batch)
        if size <= self._room:
            self._room -= size
            return _Batch(frame.origin, frame.chunk, frame.batch)
        position = self._overflow.tell()
        self._overflow.write(frame.batch)
        return _Batch(frame.origin, frame.chunk, None, position, size)

    def _loaded(self, batch: _Batch) -> bytes | memoryview:
        if batch.held is not None:
            return batch.held
        self._overflow.seek(batch.position)
        return self._overflow.read(batch.size)


@contextmanager
def read_share(arrow_batches: Iterator[pa.RecordBatch], held_bytes_max: int = HELD_BYTES_MAX) -> Iterator[Share]:
    """Takes in everything that was shuffled to this task."""
    # Where Spark keeps its own shuffled data, there is room.
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    with tempfile.TemporaryFile(dir=folder) as overflow:
        share = Share(overflow, held_bytes_max)
        for arrow_batch in arrow_batches:
            share.take(arrow_batch)
        yield share

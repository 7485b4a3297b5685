"""What one sending task has to send, taken in whole."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest

import pyarrow as pa

from sparkonce.model import TopicPartition
from sparkonce.spark.kept import HELD_BYTES_MAX, Data, Kept, Piece, keeping
from sparkonce.spark.shuffled import MANIFEST_CHUNK, Frame


@dataclass(frozen=True, slots=True, order=True)
class _Batch:
    """An encoded batch and its place in the order of sending."""

    origin: int
    chunk: int
    piece: Piece = field(compare=False)


class Share:
    """The batches of a task's partitions. `read_share` makes one."""

    def __init__(self, kept: Kept) -> None:
        self.encoders: dict[int, int] = {}
        """Spark partition → task attempt that encoded it."""
        self.expected: Counter[TopicPartition] = Counter()
        """How many records were encoded for each partition."""
        self._batches: dict[TopicPartition, list[_Batch]] = defaultdict(list)
        self._kept = kept

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
                piece = self._kept.keep(frame.batch)
                self._batches[frame.partition].append(_Batch(frame.origin, frame.chunk, piece))

    def batches(self) -> Iterator[tuple[TopicPartition, Data]]:
        """All batches: those of a partition in their order, partitions in turns, so that all leaders are busy."""
        lanes = [[(partition, batch) for batch in sorted(self._batches[partition])] for partition in self._batches]
        for round_of_all in zip_longest(*lanes):
            for partition, batch in filter(None, round_of_all):
                yield partition, self._kept.load(batch.piece)

    def _take_manifest(self, text: bytes) -> None:
        manifest = json.loads(text)
        self.encoders[manifest["origin"]] = manifest["attempt"]
        for topic, partition, records in manifest["records"]:
            self.expected[TopicPartition(topic, partition)] += records


@contextmanager
def read_share(arrow_batches: Iterator[pa.RecordBatch], held_bytes_max: int = HELD_BYTES_MAX) -> Iterator[Share]:
    """Takes in everything that was shuffled to this task."""
    with keeping(held_bytes_max) as kept:
        share = Share(kept)
        for arrow_batch in arrow_batches:
            share.take(arrow_batch)
        yield share

"""What is shuffled from encoding to sending tasks: one row for each record batch, and the manifests.

    share    the sending task
    frame    partition (4 bytes), origin (4), chunk (4), length of the topic's name (2) │ topic │ record batch

`origin` is the Spark partition that encoded the batch and `chunk` its place there: together the order of sending. A
manifest has the chunk -1 and JSON in the place of the batch.

It is one column, since Spark writes the sending tasks' input with the same compiled code as the query's rows: with
numbers beside it, these were written more slowly, and they are thousands of times as many.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa

from sparkonce.model import TopicPartition

SCHEMA = pa.schema([pa.field("share", pa.int32()), pa.field("frame", pa.binary())])
SPARK_SCHEMA = "share int, frame binary"
MANIFEST_CHUNK = -1
_HEADER = struct.Struct(">iiiH")


@dataclass(frozen=True, slots=True)
class Frame:
    """What arrives."""

    partition: TopicPartition
    origin: int
    chunk: int
    batch: memoryview

    @classmethod
    def read(cls, data: memoryview) -> Frame:
        """Without a copy of the batch."""
        partition, origin, chunk, topic_size = _HEADER.unpack_from(data)
        topic_end = _HEADER.size + topic_size
        topic = bytes(data[_HEADER.size : topic_end]).decode()
        return cls(TopicPartition(topic, partition), origin, chunk, data[topic_end:])


class Frames:
    """Frames of one encoding task that wait to be given to Spark."""

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self._clear()

    def add(self, share: int, partition: TopicPartition, chunk: int, batch: bytes) -> None:
        """Adds a record batch."""
        topic = partition.topic.encode()
        header = _HEADER.pack(partition.partition, self._origin, chunk, len(topic)) + topic
        self._shares.append(share)
        self._pieces += (header, batch)
        self._sizes.append(len(header) + len(batch))
        self.waiting_bytes += self._sizes[-1]

    def add_manifest(self, share: int, manifest: bytes) -> None:
        """Adds what a share is told at the end."""
        self.add(share, TopicPartition("", -1), MANIFEST_CHUNK, manifest)

    def taken(self) -> pa.RecordBatch:
        """All that wait, as rows; none wait afterwards."""
        offsets = np.fromiter(accumulate(self._sizes, initial=0), np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(self._pieces))]
        frames = pa.Array.from_buffers(pa.binary(), len(self._sizes), buffers)
        rows = pa.RecordBatch.from_arrays([pa.array(self._shares, pa.int32()), frames], schema=SCHEMA)
        self._clear()
        return rows

    def _clear(self) -> None:
        self._shares: list[int] = []
        self._sizes: list[int] = []
        self._pieces: list[bytes] = []
        self.waiting_bytes = 0

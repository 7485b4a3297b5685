"""The headers of the record batches in a fetched buffer, as columns. Their records are not touched.

With these the caller decides which batches to decode: it skips control batches and aborted transactions, and moves
on by a batch's last offset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkonce.errors import CorruptRecordsError, SparkonceError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.records.buffers import Bools, Longs, read_only
from sparkonce.records.kernels import BAD_MAGIC, HEADER_FIELDS, OK, read_batch_headers
from sparkonce.records.layout import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_END,
    TRANSACTIONAL_BIT,
    Codec,
)

_LAST_CODEC = max(Codec)
_OFFSET_MAX = 2**63 - 2**32


@dataclass(frozen=True, slots=True, eq=False)
class BatchHeaders:
    """One entry a whole record batch; the fields are those of the layout."""

    walked_bytes: int
    """Where the last whole batch ends. What follows is a batch that the fetch cut off."""
    position: Longs
    base_offset: Longs
    length: Longs
    crc: Longs
    attributes: Longs
    last_offset_delta: Longs
    base_timestamp: Longs
    max_timestamp: Longs
    producer_id: Longs
    producer_epoch: Longs
    base_sequence: Longs
    record_count: Longs

    def __len__(self) -> int:
        return len(self.position)

    @property
    def end(self) -> Longs:
        """Where each batch ends in the buffer."""
        return self.position + (LENGTH_END + self.length)

    @property
    def last_offset(self) -> Longs:
        """The offset after which reading goes on; the record that had it may be gone by compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Longs:
        """Numbers of `Codec`."""
        return self.attributes & CODEC_MASK

    def _has(self, bit: int) -> Bools:
        flags: Bools = self.attributes & bit != 0
        return flags

    @property
    def is_append_time(self) -> Bools:
        """Whether the broker's append time counts for all records of the batch."""
        return self._has(APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> Bools:
        """Whether the batch belongs to a transaction, and so may be aborted."""
        return self._has(TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> Bools:
        """Whether the batch is a transaction's end marker instead of data."""
        return self._has(CONTROL_BIT)


def read_headers(data: bytes | bytearray | memoryview, source: TopicPartition | None = None) -> BatchHeaders:
    """Finds the whole batches in `data` and checks that their headers make sense. `source` is for error messages."""
    buffer = read_only(np.frombuffer(data, np.uint8))
    status, count, walked = read_batch_headers(buffer, np.empty((HEADER_FIELDS, 0), np.int64))
    if status != OK:
        raise _header_error(status, buffer[walked:].tobytes()[: LENGTH_END + 5], source)
    fields = np.empty((HEADER_FIELDS, count), np.int64)
    read_batch_headers(buffer, fields)
    headers = BatchHeaders(int(walked), *fields)
    _check(headers, source)
    return headers


def place(source: TopicPartition | None, offset: int) -> str:
    """Names topic, partition and offset in an error message."""
    return f"{source or 'the records'} at offset {offset}"


def _header_error(status: int, start: bytes, source: TopicPartition | None) -> SparkonceError:
    where = place(source, int.from_bytes(start[:8], "big", signed=True))
    magic = start[LENGTH_END + 4]
    if status == BAD_MAGIC and magic < 2:
        return UsageError(
            f"{where} has the old message format {magic}, which Kafka replaced in 0.11; copy the topic with a "
            f"current client, or read from a later offset"
        )
    if status == BAD_MAGIC:
        return CorruptRecordsError(f"{where}: unknown message format {magic}")
    length = int.from_bytes(start[8:LENGTH_END], "big", signed=True)
    return CorruptRecordsError(f"{where}: a batch length of {length} bytes; the least is {HEADER_BYTES - LENGTH_END}")


def _check(headers: BatchHeaders, source: TopicPartition | None) -> None:
    """A header that lies must not make a reader go back, loop or allocate."""
    rules = {
        "a negative or too large base offset": (headers.base_offset < 0) | (headers.base_offset > _OFFSET_MAX),
        "a negative last offset delta": headers.last_offset_delta < 0,
        "a negative record count": headers.record_count < 0,
        "more records than offsets": headers.record_count > headers.last_offset_delta + 1,
        "an unknown compression codec": headers.codec > _LAST_CODEC,
    }
    for reason, broken in rules.items():
        if broken.any():
            first = int(np.argmax(broken))
            raise CorruptRecordsError(f"{place(source, int(headers.base_offset[first]))}: batch with {reason}")

"""Which partition each row goes to, and the rows of each partition in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.errors import UsageError
from sparkonce.records.buffers import Ints, Longs
from sparkonce.records.columns import RecordColumns
from sparkonce.records.kernels import group_rows, partition_by_key

STICKY_BYTES = 1_048_576
_UNDECIDED = -1

Partitioner = Callable[[pa.RecordBatch, int], pa.Array]
"""A custom partitioner: the rows and the number of partitions → an integer column; null leaves the row to its key."""


@dataclass(frozen=True, slots=True)
class StickyPartition:
    """Where records without a key go until the partition has taken its share (KIP-480, KIP-794)."""

    partition: int = 0
    used_bytes: int = 0


def partition_rows(
    columns: RecordColumns,
    partition_count: int,
    *,
    explicit: pa.Array | None = None,
    sticky: StickyPartition | None = None,
    sticky_bytes: int = STICKY_BYTES,
) -> tuple[Ints, StickyPartition]:
    """A partition for each row: the explicit one, else by key as the Java client does, else the sticky one.

    Gives the partitions and the sticky partition to go on with.
    """
    if partition_count < 1:
        raise UsageError(f"a topic with {partition_count} partitions cannot be written to")
    sticky = sticky or StickyPartition()
    partitions = _explicit(explicit, len(columns), partition_count)
    partition, used = partition_by_key(
        columns.keys,
        columns.values,
        partition_count,
        sticky.partition % partition_count,
        sticky.used_bytes,
        sticky_bytes,
        partitions,
    )
    return partitions, StickyPartition(int(partition), int(used))


def custom_partitions(partitioner: Partitioner, rows: pa.RecordBatch, partition_count: int) -> pa.Array:
    """Calls a custom partitioner and checks the shape of its answer; the values are checked by `partition_rows`."""
    answer = partitioner(rows, partition_count)
    if isinstance(answer, np.ndarray):
        answer = pa.array(answer)
    if not isinstance(answer, pa.Array | pa.ChunkedArray):
        raise UsageError(f"the partitioner must give an Arrow column, but it gave {type(answer).__name__}")
    if len(answer) != rows.num_rows:
        raise UsageError(f"the partitioner gave {len(answer)} partitions for {rows.num_rows} rows")
    return answer


def rows_of_partitions(partitions: Ints, partition_count: int) -> Iterator[tuple[int, Longs]]:
    """The rows of each partition that has any, in their order. Every entry must be below `partition_count`."""
    starts = np.empty(partition_count + 2, np.int64)
    order = np.empty(len(partitions), np.int64)
    group_rows(partitions, starts, order)
    for partition in np.flatnonzero(np.diff(starts[: partition_count + 1])):
        yield int(partition), order[starts[partition] : starts[partition + 1]]


def _explicit(column: pa.Array | None, rows: int, partition_count: int) -> Ints:
    if column is None:
        return np.full(rows, _UNDECIDED, np.int32)
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise UsageError(f"partitions must be integers, but the column is {column.type}")
    if len(column) != rows:
        raise UsageError(f"there are {len(column)} partitions for {rows} rows")
    bounds = pc.min_max(column)
    for wrong in (bounds["min"].as_py(), bounds["max"].as_py()):
        if wrong is not None and not 0 <= wrong < partition_count:
            raise UsageError(f"partition {wrong} does not exist: the topic has partitions 0 to {partition_count - 1}")
    filled = column.cast(pa.int32()).fill_null(_UNDECIDED)
    return np.array(filled, np.int32)

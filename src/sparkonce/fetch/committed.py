"""Which of the fetched record batches a reader may see. Pure.

A fetch answer with `read_committed` ends at the last stable offset, so that all its transactions are decided, and it
names the aborted ones among them by producer and first offset. Their records lie in the log like any others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sparkonce.records import BatchHeaders
from sparkonce.wire import AbortedTransaction

Mask = npt.NDArray[np.bool_]


def visible_batches(headers: BatchHeaders, aborted: Sequence[AbortedTransaction]) -> Mask:
    """Marks the batches with data of committed transactions or of none: neither control batches nor aborted ones."""
    data: Mask = ~headers.is_control
    return data & ~_aborted_batches(headers, aborted) if aborted else data


def _aborted_batches(headers: BatchHeaders, aborted: Sequence[AbortedTransaction]) -> Mask:
    """From a transaction's first offset to its marker, all transactional batches of its producer are dropped.

    A producer has one transaction at a time, so the next control batch of that producer is the marker of this very
    transaction: its kind need not be looked at.
    """
    dropped = np.zeros(len(headers), np.bool_)
    waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    aborting: set[int] = set()
    transactional, control = headers.is_transactional, headers.is_control
    for index, (last_offset, producer_id) in enumerate(
        zip(headers.last_offset.tolist(), headers.producer_id.tolist(), strict=True)
    ):
        while waiting and waiting[-1].first_offset <= last_offset:
            aborting.add(waiting.pop().producer_id)
        if control[index]:
            aborting.discard(producer_id)
        else:
            dropped[index] = transactional[index] and producer_id in aborting
    return dropped


def overlapping_batches(headers: BatchHeaders, start: int, end: int) -> Mask:
    """Marks the batches that may have records in [start, end); the first and the last may reach beyond it."""
    overlapping: Mask = (headers.last_offset >= start) & (headers.base_offset < end)
    return overlapping

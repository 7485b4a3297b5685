"""The shapes in which columns go in and out of the compiled kernels: flat buffers, no Arrow, no Python objects."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

NO_NULLS = -1
ALL_NULL = -2


class Binary(NamedTuple):
    """A binary column as flat buffers: row i is `data[offsets[i]:offsets[i + 1]]`.

    `first_bit` is the position of row 0 in the `validity` bitmap, or `NO_NULLS`, or `ALL_NULL`.
    """

    offsets: Longs
    data: Bytes
    validity: Bytes
    first_bit: int


class Headers(NamedTuple):
    """A list column of headers: row i has the headers `lists.offsets[i]` up to `lists.offsets[i + 1]`."""

    lists: Binary
    keys: Binary
    values: Binary


class BinaryOut(NamedTuple):
    """Where a decoded binary column goes; `data` is as large as all the record bytes, so it cannot overflow."""

    offsets: Ints
    data: Bytes
    valid: Bytes


class RecordsOut(NamedTuple):
    """Where decoded records go, one entry a record."""

    offsets: Longs
    timestamps: Longs
    timestamp_types: Ints
    header_counts: Ints
    header_positions: Longs


_Array = TypeVar("_Array", bound=npt.NDArray[np.generic])


def read_only(array: _Array) -> _Array:
    """Marks a view as read-only: the kernels are compiled once, for inputs that they cannot change."""
    array.flags.writeable = False
    return array

"""Arrow columns made ready to be written as text, whole columns at a time. Pure; shared by the databases."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.participants.columns import Kind, kind_of, value_type

_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_BYTE_HEX = np.stack([np.repeat(_HEX_DIGITS, 16), np.tile(_HEX_DIGITS, 16)], axis=1).copy()
"""The two digits of each byte."""


def plain(column: pa.Array) -> pa.Array:
    """One of few types, with the same values: no dictionaries, zones, views, or units below microseconds.

    A time with a zone becomes the same instant in UTC, written without its zone: ten times as fast to format. The
    session that reads it must be in UTC. What would lose digits raises ArrowInvalid.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = kind_of(column.type)
    if kind is Kind.NULL or pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    if kind in (Kind.INSTANT, Kind.TIMESTAMP):
        return column.cast(pa.timestamp("us"))
    if kind is Kind.TIME:
        return column.cast(pa.time64("us"))
    if kind is Kind.DATE:
        return column.cast(pa.date32())
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    return column


def hexadecimal(column: pa.Array) -> pa.Array:
    """Bytes as hexadecimal digits; null stays null."""
    packed = column.cast(pa.large_binary())
    # Buffers are shared with slices: take what belongs to this one.
    offsets = np.frombuffer(packed.buffers()[1], np.int64)[packed.offset : packed.offset + len(packed) + 1]
    data = packed.buffers()[2]
    values = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data else np.empty(0, np.uint8)
    digits = _BYTE_HEX[values].tobytes()
    widened = pa.py_buffer((offsets - offsets[0]) * 2)
    valid = pc.is_valid(packed)
    text = pa.LargeStringArray.from_buffers(len(packed), widened, pa.py_buffer(digits))
    return pc.if_else(valid, text, pa.scalar(None, pa.large_string()))


def enclosed(opening: str, text: pa.Array, closing: str) -> pa.Array:
    """Each value between two texts; null stays null."""
    large = [pa.scalar(opening, pa.large_string()), text, pa.scalar(closing, pa.large_string())]
    return pc.binary_join_element_wise(*large, pa.scalar("", pa.large_string()))


def has_not_a_number(column: pa.Array) -> bool:
    """Whether a floating column has NaN or an infinity."""
    if kind_of(value_type(column.type)) is not Kind.FLOAT:
        return False
    return bool(pc.any(pc.invert(pc.is_finite(plain(column)))).as_py())

"""The few encodings of Kafka's flexible request versions (KIP-482) that the two hot messages need. Pure functions.

A length is written as an unsigned varint of length + 1, so that 0 stands for null; a section of tagged fields is their
number, then for each tag, size and bytes.
"""

from __future__ import annotations

from sparkonce.errors import CorruptRecordsError

NO_TAGS = b"\x00"


def unsigned_varint(value: int) -> bytes:
    """Seven bits per byte, lowest first; the high bit says that more follow."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text: str | None) -> bytes:
    """A nullable string with its length."""
    if text is None:
        return b"\x00"
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


def read_unsigned_varint(data: memoryview, position: int) -> tuple[int, int]:
    """The value at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise CorruptRecordsError("a length in a broker's answer is longer than 32 bits")


def skip_tags(data: memoryview, position: int) -> int:
    """The position after a section of tagged fields that nobody here needs."""
    count, position = read_unsigned_varint(data, position)
    for _ in range(count):
        _, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        position += size
    return position

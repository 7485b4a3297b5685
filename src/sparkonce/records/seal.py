"""Stamping a producer onto an encoded batch. The records are not touched; only the 61 bytes before them are.

An encoded batch is complete but for its producer: it is a valid batch of a producer without identity. So the same
bytes can be sealed again for another producer, epoch or sequence, which is what a retried micro-batch does.
"""

from __future__ import annotations

from crc32c import crc32c

from sparkonce.errors import UsageError
from sparkonce.model import NO_PRODUCER, ProducerIdentity
from sparkonce.records.layout import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    COUNT,
    COUNT_POSITION,
    CRC,
    CRC_POSITION,
    HEADER_BYTES,
    MAGIC,
    PRODUCER,
    PRODUCER_POSITION,
    TRANSACTIONAL_BIT,
)

_MAGIC_POSITION = 16
NO_SEQUENCE = -1


def seal(
    batch: bytes | bytearray | memoryview,
    producer: ProducerIdentity = NO_PRODUCER,
    base_sequence: int = NO_SEQUENCE,
    *,
    transactional: bool = False,
) -> bytearray:
    """A copy of `batch` with this producer, sequence and transactional bit, and the CRC that belongs to them."""
    if len(batch) < HEADER_BYTES or batch[_MAGIC_POSITION] != MAGIC:
        raise UsageError(f"{len(batch)} bytes are not an encoded record batch and cannot be sealed")
    sealed = bytearray(batch)
    (attributes,) = ATTRIBUTES.unpack_from(sealed, ATTRIBUTES_POSITION)
    attributes = attributes | TRANSACTIONAL_BIT if transactional else attributes & ~TRANSACTIONAL_BIT
    ATTRIBUTES.pack_into(sealed, ATTRIBUTES_POSITION, attributes)
    PRODUCER.pack_into(sealed, PRODUCER_POSITION, producer.producer_id, producer.producer_epoch, base_sequence)
    CRC.pack_into(sealed, CRC_POSITION, crc32c(memoryview(sealed)[ATTRIBUTES_POSITION:]))
    return sealed


def record_count(batch: bytes | bytearray | memoryview) -> int:
    """How many records a batch says it has: by so much the next batch's base sequence is larger."""
    return int(COUNT.unpack_from(batch, COUNT_POSITION)[0])

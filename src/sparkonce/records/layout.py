"""The bytes of a Kafka record batch (magic 2), drawn once. Knows no Arrow, no compression, no network.

    position  type    field
    --------  ------  -------------------------------------------------------------------------
           0  int64   base offset                 given by the broker; 0 while we hold it
           8  int32   length                      of all that follows this field
          12  int32   partition leader epoch      given by the broker
          16  int8    magic                       2
          17  uint32  CRC-32C                     of everything from the attributes to the end
          21  int16   attributes                  see below
          23  int32   last offset delta           record count - 1, unless compaction removed records
          27  int64   base timestamp              of the first record, milliseconds
          35  int64   max timestamp               or the append time
          43  int64   producer id                 -1: not idempotent
          51  int16   producer epoch
          53  int32   base sequence
          57  int32   record count
          61          the records, compressed as one piece if the attributes say so

    record:  varint length of the rest, int8 attributes (0), varlong timestamp delta, varint offset delta,
             varint key length (-1: null), key, varint value length (-1: null), value,
             varint header count, and for each header: varint key length, key, varint value length, value

    attributes:  bits 0-2 codec, bit 3 timestamp type (1: append time), bit 4 transactional, bit 5 control

Varints are zigzag encoded, least significant group first, as in Protocol Buffers.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

HEADER_BYTES = 61
LENGTH_END = 12
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
PRODUCER_POSITION = 43
COUNT_POSITION = 57

MAGIC = 2
RECORD_BYTES_MIN = 7
"""The shortest record: seven one-byte fields, with a null key, a null value and no headers."""

CODEC_MASK = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

HEADER = struct.Struct(">qiibIhiqqqhii")
PRODUCER = struct.Struct(">qhi")
CRC = struct.Struct(">I")
ATTRIBUTES = struct.Struct(">h")
COUNT = struct.Struct(">i")


class Codec(IntEnum):
    """How the records of a batch are compressed; the numbers are Kafka's."""

    none = 0
    gzip = 1
    snappy = 2
    lz4 = 3
    zstd = 4


class BatchHeader(NamedTuple):
    """The fields of `HEADER`, in order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

"""Encoded batches that wait to be sent: in memory, and beyond that in a file that has no name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

HELD_BYTES_MAX = 256 * 1024 * 1024

Data = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a batch is: in memory, or at a position of the file."""

    size: int
    held: Data | None
    position: int = 0


class Kept:
    """What one task keeps. `keeping` makes one."""

    def __init__(self, overflow: IO[bytes], held_bytes_max: int) -> None:
        self._overflow = overflow
        self._room = held_bytes_max

    def keep(self, data: Data) -> Piece:
        """Keeps a batch."""
        size = len(data)
        if size <= self._room:
            self._room -= size
            return Piece(size, data)
        position = self._overflow.seek(0, os.SEEK_END)  # Reading may have moved it.
        self._overflow.write(data)
        return Piece(size, None, position)

    def load(self, piece: Piece) -> Data:
        """Gives it back."""
        if piece.held is not None:
            return piece.held
        self._overflow.seek(piece.position)
        return self._overflow.read(piece.size)


@contextmanager
def keeping(held_bytes_max: int = HELD_BYTES_MAX) -> Iterator[Kept]:
    """Keeps while the block runs."""
    # Where Spark keeps its own shuffled data, there is room.
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    with tempfile.TemporaryFile(dir=folder) as overflow:
        yield Kept(overflow, held_bytes_max)

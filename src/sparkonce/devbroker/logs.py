"""Reads the end of a growing log file. Knows nothing about who writes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sparkonce.errors import UsageError

BLOCK_BYTES = 1 << 16
FOLLOW_PAUSE_SECONDS = 0.2


def last_lines(path: Path, count: int) -> tuple[str, int]:
    """The last lines, and the position in bytes up to which the file was read."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            start, content = end, b""
            # One newline more than lines: the one that ends the line before them.
            while start > 0 and content.count(b"\n") <= count:
                size = min(BLOCK_BYTES, start)
                start -= size
                file.seek(start)
                content = file.read(size) + content
    except OSError as error:
        raise UsageError(f"The log {path} cannot be read: {error.strerror}.") from error
    lines = content.splitlines(keepends=True)[-count:] if count else []
    return b"".join(lines).decode("utf-8", errors="replace"), end


def follow(path: Path, position_bytes: int, writing: Callable[[], bool]) -> Iterator[str]:
    """What is added from that position on, until its writer has ended."""
    with path.open("rb") as file:
        file.seek(position_bytes)
        while True:
            # Asked before reading, so that the writer's last words are not missed.
            goes_on = writing()
            if added := file.read():
                yield added.decode("utf-8", errors="replace")
            elif not goes_on:
                return
            else:
                time.sleep(FOLLOW_PAUSE_SECONDS)

"""Shows how far something slow is: one changing line on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

PLAIN_EVERY_SECONDS = 10.0
TERMINAL_EVERY_SECONDS = 0.2


class Progress:
    """Writes about one piece of work to one stream."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = title
        self._stream = stream
        self._terminal = stream.isatty()
        self._begun = time.monotonic()
        self._shown = 0.0
        self._last_plain = ""

    def show(self, state: object) -> None:
        """Says how far it is, not more often than anyone wants to read."""
        now = time.monotonic()
        if now - self._shown < (TERMINAL_EVERY_SECONDS if self._terminal else PLAIN_EVERY_SECONDS):
            return
        self._shown = now
        text = f"{self._title}: {state}, {now - self._begun:.0f} s"
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write("\r" + text[:width].ljust(width))
        elif str(state) != self._last_plain:
            self._last_plain = str(state)
            self._stream.write(text + "\n")
        self._stream.flush()

    def note(self, text: str) -> None:
        """Says something once, on a line of its own."""
        if self._terminal:
            self._stream.write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")
        self._stream.write(text + "\n")
        self._stream.flush()

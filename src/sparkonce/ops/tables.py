"""Tables and amounts for people. Pure: values in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 100
_GAP = "  "


def table(header: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> str:
    """Columns in line; those named in `right` are aligned to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *texts]) for i in range(len(header))]
    to_right = [name in right for name in header]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(cells, widths, to_right, strict=True)
        )
        return _GAP.join(padded).rstrip()

    return "\n".join(line(row) for row in [header, *texts])


def wrapped(text: str, indent: int, width: int = WIDTH) -> str:
    """A text in lines that are not too long, all but the first one indented; commands in it stay whole."""
    lines = []
    for part in text.split("\n"):
        lines += textwrap.wrap(part, width - indent, break_long_words=False, break_on_hyphens=False) or [""]
    return ("\n" + " " * indent).join(lines)


def duration(ms: float) -> str:
    """Two units at most: 850 ms, 12.3 s, 4 min 5 s, 2 h 3 min, 7 d."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    for size, unit, smaller_size, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            big, rest = divmod(int(seconds), size)
            small = rest // smaller_size
            return f"{big} {unit} {small} {smaller}" if small else f"{big} {unit}"
    raise AssertionError(ms)


def count(number: int, word: str, words: str | None = None) -> str:
    """1 partition, 2 partitions."""
    return f"{number:,} {word if number == 1 else words or word + 's'}"


def listed(items: Sequence[object], most: int = 5) -> str:
    """Some of them, and how many more there are."""
    texts = [str(item) for item in items]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more

"""Why a broker did not start, read from its log. Pure: text in, a sentence out."""

from __future__ import annotations

import re
from dataclasses import dataclass

SHOWN_LINES = 8
LONGEST_LINE = 300


@dataclass(frozen=True, slots=True)
class Cause:
    """A known reason: how the log shows it, and what to say."""

    name: str
    pattern: re.Pattern[str]
    advice: str


def cause(name: str, pattern: str, advice: str) -> Cause:
    """A cause whose pattern is searched anywhere in the log."""
    return Cause(name, re.compile(pattern, re.IGNORECASE), advice)


DISK_FULL = cause(
    "disk full",
    r"No space left on device|Disk quota exceeded",
    "the disk is full; make room or choose another data folder",
)
PORT_TAKEN = cause(
    "port taken",
    r"BindException|Address already in use|Failed to bind",
    "another process took the port; stop it or choose another port",
)
CAUSES = [
    DISK_FULL,
    cause(
        "file too large",
        r"File too large",
        "a limit on the size of files (ulimit -f) is below what Kafka's segments need",
    ),
    PORT_TAKEN,
    cause(
        "folder in use",
        r"Failed to acquire lock on file",
        "the data folder is in use by another broker; stop that one first",
    ),
    cause(
        "memory",
        r"insufficient memory for the Java|Could not reserve enough space|Cannot allocate memory|OutOfMemoryError",
        "there is not enough memory; choose a smaller or larger heap, or fewer brokers",
    ),
    cause("old Java", r"UnsupportedClassVersionError", "this Java is too old for Kafka; use 17 or 21"),
    cause(
        "missing jar",
        r"NoClassDefFoundError|ClassNotFoundException|Could not find or load main class",
        "a jar is missing or damaged; run: sparkonce broker fetch --again",
    ),
    cause(
        "permission",
        r"Permission denied|AccessDeniedException|Read-only file system",
        "a folder or file cannot be written",
    ),
    cause(
        "refused property",
        r"ConfigException|Invalid value|requirement failed",
        "Kafka refuses a property; its words are below",
    ),
]
"""In the order of how much they explain: a full disk also breaks properties and locks."""


def find_cause(log: str) -> Cause | None:
    """The first known cause that the log shows, in the order of how much it explains."""
    return next((cause for cause in CAUSES if cause.pattern.search(log)), None)


def meaningful_lines(log: str) -> list[str]:
    """The last lines that name an error; the last lines of all when none does."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith(("\tat ", "\t..."))]
    errors = [line for line in lines if re.search(r"\b(ERROR|FATAL)\b|Exception|Error:|Caused by", line)]
    return [line[:LONGEST_LINE] for line in (errors or lines)[-SHOWN_LINES:]]

"""What is wrong with a pipeline file: every problem with its line, in one report."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass

from sparkonce.pipeline.toml_lines import Lines, Path


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing to change."""

    line: int
    key: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.key}: {self.message}" if self.key else f"line {self.line}: {self.message}"


class Problems:
    """Collects problems; knows the line of every key."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        # A dotted name of Kafka or Spark may be written as one quoted key or as tables within tables.
        self._joined = {_joined(path): line for path, line in lines.items()}
        self._found: dict[tuple[Path, str], Problem] = {}

    def add(self, path: Path, message: str) -> None:
        """The path may name a key that is not there: then the line is that of its table."""
        self._found.setdefault((path, message), Problem(self.line_of(path), key_text(path), message))

    def line_of(self, path: Path) -> int:
        """The line of a key, or of the nearest table around it."""
        while _joined(path) not in self._joined:
            path = path[:-1]
        return self._lines.get(path) or self._joined[_joined(path)]

    def below(self, *path: str | int) -> bool:
        """Whether this part of the file has a problem already."""
        return any(found[: len(path)] == path for found, _ in self._found)

    def about(self, *path: str | int) -> bool:
        """Whether exactly this key has a problem already."""
        return any(found == path for found, _ in self._found)

    def in_order(self) -> list[Problem]:
        """As they stand in the file."""
        return sorted(self._found.values())


def _joined(path: Path) -> str:
    return ".".join(str(part) for part in path)


def key_text(path: Path) -> str:
    """source.topics, sink[2].topic: sinks are counted from 1, as people do."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            text += ("." if text else "") + (part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"')
    return text


def nearest(name: str, known: Collection[str], cutoff: float = 0.5) -> str | None:
    """The known name that looks most like this one."""
    found = difflib.get_close_matches(name.lower(), sorted(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def listed(names: Collection[str], word: str = "and") -> str:
    """One, two and three."""
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last


def report(file: str, problems: list[Problem]) -> str:
    """The text for people."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n".join([f"{file}: {count}", *(f"  {problem}" for problem in problems)])

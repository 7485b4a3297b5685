"""Where each key and table of a TOML text stands, which `tomllib` does not say.

A scanner of what `tomllib` has accepted already: it looks for the ends of keys and values and does not check them. The
paths are those of the parsed value, ("sink", 0, "topic"), so that whoever walks the value can ask for any of them.
"""

from __future__ import annotations

import re
import tomllib

Path = tuple[str | int, ...]
Lines = dict[Path, int]

_BLANK = re.compile(r"[ \t]*")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}\n#]+")


def key_lines(text: str) -> Lines:
    """The line of every key, table and element of a valid TOML text, counted from 1."""
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: Lines = {(): 1}
        self._counts: dict[Path, int] = {}
        """How many elements the arrays of tables have so far."""
        self._counted_to, self._line = 0, 1

    def document(self) -> None:
        table: Path = ()
        while self._skip(_SPACE) < len(self.text):
            if self.text.startswith("[[", self.at):
                table = self._array_header()
            elif self.text[self.at] == "[":
                table = self._table_header()
            else:
                self._pair(table)

    def _table_header(self) -> Path:
        line = self._line_here()
        self.at += 1
        path = self._resolved(self._key(), line)
        self.at += 1
        # A table may be named by its parts first; its own header is the better place then.
        self.lines[path] = line
        return path

    def _array_header(self) -> Path:
        line = self._line_here()
        self.at += 2
        *above, last = self._key()
        self.at += 2
        array = (*self._resolved(above, line), last)
        self.lines.setdefault(array, line)
        element = (*array, self._counts.get(array, 0))
        self._counts[array] = self._counts.get(array, 0) + 1
        self.lines[element] = line
        return element

    def _resolved(self, key: list[str], line: int) -> Path:
        """The path of a header's key: an array of tables on the way means its latest element."""
        path: Path = ()
        for part in key:
            path = (*path, part)
            self.lines.setdefault(path, line)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def _pair(self, table: Path) -> None:
        path = table
        line = self._line_here()
        for part in self._key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self._skip(_BLANK)
        self.at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip(_BLANK)
            parts.append(self._key_part())
            self._skip(_BLANK)
            if self.text[self.at] != ".":
                return parts
            self.at += 1

    def _key_part(self) -> str:
        quoted = self.text[self.at] in "\"'"
        found = self._take(_STRING if quoted else _BARE)
        # A quoted key may hold escapes, which tomllib knows how to read.
        return str(tomllib.loads(f"key = {found}")["key"]) if quoted else found

    def _value(self, path: Path) -> None:
        first = self.text[self.at]
        if first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        else:
            self._take(_STRING if first in "\"'" else _SCALAR)

    def _array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while self._skip(_SPACE) is not None and self.text[self.at] != "]":
            self.lines[(*path, index)] = self._line_here()
            self._value((*path, index))
            self._skip_comma()
            index += 1
        self.at += 1

    def _inline_table(self, path: Path) -> None:
        self.at += 1
        while self._skip(_SPACE) is not None and self.text[self.at] != "}":
            self._pair(path)
            self._skip_comma()
        self.at += 1

    def _skip_comma(self) -> None:
        self._skip(_SPACE)
        if self.text[self.at] == ",":
            self.at += 1

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise ValueError(f"not TOML at character {self.at}")
        self.at = match.end()
        return match[0]

    def _skip(self, pattern: re.Pattern[str]) -> int:
        self._take(pattern)
        return self.at

    def _line_here(self) -> int:
        self._line += self.text.count("\n", self._counted_to, self.at)
        self._counted_to = self.at
        return self._line

"""A parsed file against its description: names, kinds of values, what is missing.

Gives back what is right of it, with secrets as `Secret` and dotted names flat, so that later checks can look at the
rest even if some of it is wrong.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.pipeline.problems import Problems, listed, nearest
from sparkonce.pipeline.secret import HIDDEN, PLACES, Secret
from sparkonce.pipeline.shapes import (
    Either,
    Flag,
    ListOf,
    MapOf,
    Moment,
    Shape,
    Table,
    Text,
    Variants,
    Whole,
    expected,
)
from sparkonce.pipeline.toml_lines import Path

_SHOWN = 60


class Wrong:
    """Stands for a value that was reported."""


WRONG = Wrong()


@dataclass(frozen=True, slots=True)
class Structure:
    """Checks the parts of one file."""

    problems: Problems
    folder: FilePath
    elsewhere: Mapping[str, str]
    """Names of keys and where they belong, for those who put one into the wrong table."""

    def checked(self, shape: Shape, value: Any, path: Path) -> Any:
        """What is right of the value, or WRONG."""
        match shape:
            case Text():
                return self._text(shape, value, path)
            case Whole():
                return self._whole(shape, value, path)
            case Flag():
                return value if isinstance(value, bool) else self._unexpected(shape, value, path)
            case Moment():
                return self._moment(shape, value, path)
            case ListOf():
                return self._list(shape, value, path)
            case MapOf():
                return self._map(shape, value, path)
            case Table():
                return self._table(shape, value, path)
            case Variants():
                return self._variants(shape, value, path)
            case Either():
                return self._either(shape, value, path)

    def _text(self, shape: Text, value: Any, path: Path) -> Any:
        if not shape.choices and is_secret(value):
            return self._secret(value, path)
        if not isinstance(value, str):
            place = ', or { env = "NAME" } or { file = "path" }'
            return self._unexpected(shape, value, path, place if isinstance(value, dict) and not shape.choices else "")
        if shape.choices and value not in shape.choices:
            near = nearest(value, shape.choices)
            return self._unexpected(shape, value, path, f'; did you mean "{near}"?' if near else "")
        if shape.pattern and not re.fullmatch(shape.pattern, value):
            return self._unexpected(shape, value, path)
        return value

    def _secret(self, value: dict[str, str], path: Path) -> Any:
        [(place, name)] = value.items()
        secret = Secret(place, name, self.folder)
        try:
            secret.reveal()
        except UsageError as error:
            self.problems.add(path, str(error))
            return WRONG
        return secret

    def _whole(self, shape: Whole, value: Any, path: Path) -> Any:
        fits = isinstance(value, int) and not isinstance(value, bool)
        if not fits or (shape.lowest is not None and value < shape.lowest):
            return self._unexpected(shape, value, path)
        return value

    def _moment(self, shape: Moment, value: Any, path: Path) -> Any:
        if not isinstance(value, dt.datetime) or value.tzinfo is None:
            return self._unexpected(shape, value, path)
        return value

    def _list(self, shape: ListOf, value: Any, path: Path) -> Any:
        if isinstance(value, str) and shape.example.startswith('["'):
            return self._unexpected(shape, value, path, f'; write ["{value}"]')
        if isinstance(value, dict) and isinstance(shape.of, Variants):
            return self._unexpected(shape, value, path, f"; write {shape.example} with two brackets")
        if not isinstance(value, list):
            return self._unexpected(shape, value, path)
        if not value:
            self.problems.add(path, f"is empty; expected {expected(shape)} such as {shape.example}")
            return WRONG
        found = [self.checked(shape.of, each, (*path, index)) for index, each in enumerate(value)]
        # Tables stay in their places, so that the second one is still called so.
        return found if isinstance(shape.of, Variants) else [each for each in found if each is not WRONG] or WRONG

    def _map(self, shape: MapOf, value: Any, path: Path) -> Any:
        if not isinstance(value, dict):
            return self._unexpected(shape, value, path)
        found = {}
        for name, (place, each) in (flat(value, path) if shape.dotted else plain(value, path)).items():
            if shape.names and not re.fullmatch(shape.names, name):
                self.problems.add(place, _wrong_name(shape, name))
                continue
            right = self.checked(shape.of, each, place)
            if right is not WRONG:
                found[name] = right
        return found

    def _either(self, shape: Either, value: Any, path: Path) -> Any:
        for each in shape.shapes:
            if _is_kind(each, value):
                return self.checked(each, value, path)
        return self._unexpected(shape, value, path)

    def _variants(self, shape: Variants, value: Any, path: Path) -> Any:
        if not isinstance(value, dict):
            return self._unexpected(shape, value, path)
        kinds = Text(choices=tuple(shape.tables))
        if shape.by not in value:
            # Without it nobody can say which keys are right.
            self.problems.add(path, f"{shape.by} is missing; expected {expected(kinds)}")
            return WRONG
        kind = self._text(kinds, value[shape.by], (*path, shape.by))
        return WRONG if kind is WRONG else self._table(shape.tables[kind], value, path)

    def _table(self, shape: Table, value: Any, path: Path) -> Any:
        if not isinstance(value, dict):
            return self._unexpected(shape, value, path)
        found = {}
        meant = {nearest(name, shape.names) for name in value if name not in shape.names}
        for name, each in value.items():
            if name not in shape.names:
                self.problems.add((*path, name), self._unknown(name, shape))
                continue
            right = self.checked(shape.key(name).shape, each, (*path, name))
            if right is not WRONG:
                found[name] = right
        for key in shape.keys:
            if key.required and key.name not in value and key.name not in meant:
                self.problems.add(path, f"{key.name} is missing; expected {expected(key.shape)}")
        if found or not meant:
            self._one_of(shape, value, path, meant)
        return found

    def _one_of(self, shape: Table, value: dict[str, Any], path: Path, meant: set[str | None]) -> None:
        chosen = [name for name in shape.one_of if name in value]
        if shape.one_of and not chosen and not meant.intersection(shape.one_of):
            self.problems.add(path, f"one of {listed(shape.one_of)} is missing")
        if len(chosen) > 1:
            self.problems.add((*path, chosen[1]), f"{listed(chosen)} cannot go together; keep one of them")

    def _unknown(self, name: str, shape: Table) -> str:
        if name in self.elsewhere:
            close = nearest(name, shape.names, cutoff=0.85)
            hint = f", or did you mean {close}?" if close else ""
            return f"does not belong here; write it in {self.elsewhere[name]}{hint}"
        near = nearest(name, shape.names)
        return f"unknown key; did you mean {near}?" if near else f"unknown key; known are {', '.join(shape.names)}"

    def _unexpected(self, shape: Shape, value: Any, path: Path, hint: str = "") -> Wrong:
        self.problems.add(path, f"is {shown(value, path)}; expected {expected(shape)}{hint}")
        return WRONG


def is_secret(value: Any) -> bool:
    """Whether this says where a text stands."""
    return (
        isinstance(value, dict)
        and len(value) == 1
        and next(iter(value)) in PLACES
        and isinstance(next(iter(value.values())), str)
    )


def plain(table: dict[str, Any], path: Path) -> dict[str, tuple[Path, Any]]:
    """Each name with its place and its value."""
    return {name: ((*path, name), each) for name, each in table.items()}


def flat(table: dict[str, Any], path: Path) -> dict[str, tuple[Path, Any]]:
    """The same; tables within tables are names with dots."""
    found: dict[str, tuple[Path, Any]] = {}
    for name, each in table.items():
        if isinstance(each, dict) and not is_secret(each):
            found |= {f"{name}.{rest}": place for rest, place in flat(each, (*path, name)).items()}
        else:
            found[name] = ((*path, name), each)
    return found


def shown(value: Any, path: Path = ()) -> str:
    """A value in words; never one that may be a password."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if any(isinstance(part, str) and HIDDEN.search(part) for part in path):
            return "a text that is not shown"
        return "an empty text" if not value.strip() else f'"{value[:_SHOWN]}{"…" if len(value) > _SHOWN else ""}"'
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return "a time without a zone"
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else "a date or time"


def _is_kind(shape: Shape, value: Any) -> bool:
    match shape:
        case Text(choices=choices):
            return isinstance(value, str) or (not choices and is_secret(value))
        case Whole():
            return isinstance(value, int) and not isinstance(value, bool)
        case Flag():
            return isinstance(value, bool)
        case Moment():
            return isinstance(value, dt.datetime)
        case ListOf():
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def _wrong_name(shape: MapOf, name: str) -> str:
    if shape.names.startswith("spark"):
        return f'is no setting of Spark; they begin with "spark.", as in "spark.{name}"'
    return f"expected {shape.what}"

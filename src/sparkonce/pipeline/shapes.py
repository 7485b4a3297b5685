"""What the values of a pipeline file may look like, as data.

The file is described once (`keys.py`) in these terms. The check, the JSON Schema and the table in the documents are
all made of that description.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text, or where it stands (env, file) if there is no choice of texts."""

    choices: tuple[str, ...] = ()
    what: str = "a text"
    pattern: str = ""
    """What the whole text must match, if it stands in the file itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number."""

    lowest: int | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A date and time with a zone, as TOML has them."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list that is not empty."""

    of: Shape
    what: str
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    """A table with any names."""

    of: Shape
    what: str
    names: str = ""
    """What each name must match."""
    dotted: bool = False
    """Whether a.b = 1 is the name "a.b", as for the properties of Kafka and Spark."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table."""

    name: str
    shape: Shape
    meaning: str
    required: bool = False
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with these keys."""

    keys: tuple[Key, ...]
    what: str = "a table"
    one_of: tuple[str, ...] = ()
    """Of these keys there must be exactly one."""

    def key(self, name: str) -> Key:
        """The key of this name."""
        return next(key for key in self.keys if key.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all keys."""
        return tuple(key.name for key in self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """A table whose keys depend on one of them."""

    by: str
    tables: dict[str, Table] = field(hash=False)
    what: str = "a table"


@dataclass(frozen=True, slots=True)
class Either:
    """One of several; they differ in their TOML type."""

    shapes: tuple[Shape, ...]


Shape = Text | Whole | Flag | Moment | ListOf | MapOf | Table | Variants | Either


def expected(shape: Shape) -> str:
    """What belongs here, in words."""
    match shape:
        case Text(choices=choices) if choices:
            quoted = [f'"{choice}"' for choice in choices]
            return quoted[0] if len(quoted) == 1 else f"one of {', '.join(quoted)}"
        case Text(what=what) | ListOf(what=what) | MapOf(what=what) | Table(what=what) | Variants(what=what):
            return what
        case Whole(lowest=lowest):
            return "a whole number" if lowest is None else f"a whole number from {lowest}"
        case Flag():
            return "true or false"
        case Moment():
            return "a time with a zone such as 2026-01-31T12:00:00Z"
        case Either(shapes=shapes):
            return ", or ".join(expected(each) for each in shapes)

"""A pipeline as values. They say what the file says; secrets in them are still where they were (`revealed` reads them).

Paths are relative to the file, so that a pipeline does not start anew because it was called from another folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sparkonce.pipeline.secret import Text

Scalar = Text | int | bool
EachPartition = Mapping[str, Mapping[str, int]]
_WITH_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a query starts or stops: exactly one of the first five is set."""

    word: str | None = None
    """earliest or latest"""
    committed: Text | None = None
    timestamp: datetime | int | None = None
    timestamps: EachPartition | None = None
    offsets: EachPartition | None = None
    reset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What keys or values are."""

    format: str
    schema: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is read."""

    bootstrap_servers: Text
    topics: tuple[Text, ...] = ()
    topic_pattern: Text | None = None
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    start: Place | None = None
    stop: Place | None = None
    key: Format | None = None
    value: Format | None = None
    on_malformed: str | None = None
    dead_letter_topic: Text | None = None
    isolation: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The other keys of [source], by their names in the file."""
    kafka: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """What becomes of the rows: exactly one of the first three is set."""

    sql: Text | None = None
    python: Text | None = None
    arrow: Text | None = None
    schema: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """What of the rows a sink gets: one of them is set."""

    expressions: tuple[Text, ...] = ()
    sql: Text | None = None
    python: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where rows go."""

    type: str
    """kafka, postgres, mariadb or files"""
    select: Select | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The other keys of the sink, by their names in the file."""
    kafka: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How it runs."""

    trigger: Text | None = None
    max_offsets_per_trigger: int | None = None
    master: Text = "local[*]"
    spark: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A whole file that was found to be right."""

    name: Text
    checkpoint: Text
    source: Source
    sinks: tuple[Sink, ...]
    transform: Transform | None = None
    run: Run = field(default_factory=Run)
    folder: Path = Path()
    """Where the file is."""

    @property
    def kafka_sink(self) -> Sink | None:
        """The one in Kafka, if there is one."""
        return next((sink for sink in self.sinks if sink.type == "kafka"), None)


def located(path: str, folder: Path) -> str:
    """A path of the file: one that is neither absolute nor an address is relative to the file."""
    if _WITH_SCHEME.match(path) or Path(path).is_absolute():
        return path
    return str(folder.absolute() / path)


def pipeline_of(found: Mapping[str, Any], folder: Path) -> Pipeline:
    """From what is known to be right."""
    transform = found.get("transform")
    run = found.get("run", {})
    return Pipeline(
        name=found["name"],
        checkpoint=found["checkpoint"],
        source=source_of(found["source"]),
        transform=Transform(**transform) if transform is not None else None,
        sinks=tuple(sink_of(sink) for sink in found["sink"]),
        run=Run(**run),
        folder=folder,
    )


def source_of(found: Mapping[str, Any]) -> Source:
    """The source, of a table or of some keys of it."""
    makers: dict[str, Callable[[Any], Any]] = {
        "topics": tuple,
        "partitions": lambda table: {topic: tuple(indexes) for topic, indexes in table.items()},
        "start": place_of,
        "stop": place_of,
        "key": lambda table: Format(**table),
        "value": lambda table: Format(**table),
    }
    own = {name: makers.get(name, lambda value: value)(value) for name, value in found.items() if name in _SOURCE}
    return Source(**own, options={name: value for name, value in found.items() if name not in _SOURCE})


_SOURCE = frozenset(Source.__dataclass_fields__) - {"options"}


def place_of(value: str | Mapping[str, Any]) -> Place:
    """A place as it stands in the file."""
    return Place(word=value) if isinstance(value, str) else Place(**value)


def sink_of(found: Mapping[str, Any]) -> Sink:
    """One table [[sink]]."""
    return Sink(
        type=found["type"],
        select=select_of(found["select"]) if "select" in found else None,
        options={name: value for name, value in found.items() if name not in ("type", "select", "kafka")},
        kafka=found.get("kafka", {}),
    )


def select_of(value: Any) -> Select:
    """What of the rows a sink gets."""
    if isinstance(value, list):
        return Select(expressions=tuple(value))
    return Select(**value) if isinstance(value, dict) else Select(sql=value)

"""Values against the option classes of the source and the sinks, which know best what they take.

First every key by itself beside values that are known to be right, so that each mistake is found and has its line; then
the table as a whole, for what keys are to one another. Loads Spark's layer when it is called, not before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.options import known_properties
from sparkonce.pipeline.arguments import in_words_of_the_file, kafka_sink_options
from sparkonce.pipeline.model import sink_of, source_of
from sparkonce.pipeline.problems import Problems
from sparkonce.pipeline.rules import Found, sinks_of
from sparkonce.pipeline.secret import hides, secrets_in
from sparkonce.pipeline.toml_lines import Path

Refuse = Callable[[Found], None]
"""UsageError for a table that is not right."""

SERVERS = "localhost:9092"
_RIGHT_SOURCE: Found = {"bootstrap_servers": SERVERS, "topics": ["orders"], "kafka": {"group.id": "group"}}
_RIGHT_SINK: Found = {"type": "kafka", "bootstrap_servers": SERVERS, "transactional_id": "id", "guarantee": "none"}
_RIGHT_ADDRESSES = {"dsn": "dbname=shop", "url": "mariadb://user@localhost/shop"}
_SUBSCRIPTIONS = ("topics", "topic_pattern", "partitions")
_NOT_ALONE = ("type", "select", "on_malformed", "dead_letter_topic")
"""Keys that are not options, or right only together with others."""


def check_values(found: Found, problems: Problems) -> None:
    """Adds what the option classes do not take."""
    # Needs pyspark and the compiled kernels, a second and a half: not for a file that is not even TOML.
    build = import_module("sparkonce.pipeline.build")
    source = found.get("source", {})
    asked = _Asked(problems, build.SOURCE_OPTIONS)
    asked.table(("source",), source, _RIGHT_SOURCE, lambda table: build.refuse_source(source_of(table)))
    for index, sink in sinks_of(found):
        if sink["type"] == "kafka":
            asked.table(("sink", index), sink, _RIGHT_SINK, partial(_refuse_kafka_sink, build, source))
        elif not problems.below("sink", index):
            asked.store(("sink", index), sink, lambda table: build.refuse_store(sink_of(table)))


def _refuse_kafka_sink(build: Any, source: Found, table: Found) -> None:
    shared: Found = {key: source[key] for key in ("bootstrap_servers", "kafka") if key in source}
    build.refuse_kafka_sink(kafka_sink_options(sink_of(table), source_of({"bootstrap_servers": SERVERS, **shared})))


class _Asked:
    """Asks the option classes, and puts their answers to the lines of the file."""

    def __init__(self, problems: Problems, source_options: tuple[str, ...]) -> None:
        self._problems = problems
        self._source_options = source_options

    def table(self, path: Path, table: Found, right: Found, refuse: Refuse) -> None:
        """Every key, then all together."""
        for key, value in table.items():
            if key == "kafka":
                for name, each in value.items():
                    self._property((*path, key, name), name, each, right, refuse)
            elif key not in _NOT_ALONE:
                self._key((*path, key), key, value, right, refuse)
        if table and not self._problems.below(*path) and not self._problems.below("source"):
            self.whole(path, table, refuse)

    def whole(self, path: Path, table: Found, refuse: Refuse) -> None:
        """All together."""
        message = self._answer(table, refuse)
        if message:
            self._add(_place(path, table, message), message, table)

    def store(self, path: Path, table: Found, refuse: Refuse) -> None:
        """The address, and the rest beside one that is right."""
        self.whole(path, {key: value for key, value in table.items() if key not in ("mode", "keys")}, refuse)
        self.whole(path, table | {key: value for key, value in _RIGHT_ADDRESSES.items() if key in table}, refuse)

    def _key(self, path: Path, key: str, value: Any, right: Found, refuse: Refuse) -> None:
        if self._problems.below(*path):
            return
        beside = {k: v for k, v in right.items() if not (key in _SUBSCRIPTIONS and k in _SUBSCRIPTIONS)}
        message = self._answer(beside | {key: value}, refuse)
        if message:
            self._add(path, message, value)

    def _property(self, path: Path, name: str, value: Any, right: Found, refuse: Refuse) -> None:
        message = self._answer(right | {"kafka": {**right.get("kafka", {}), name: value}}, refuse)
        # A property that is right by itself may still need another one: that is for the table as a whole.
        others = [other for other in known_properties() if other != name and "." in other]
        if message and (message.startswith("unknown") or not any(other in message for other in others)):
            self._add(path, message, value)

    def _answer(self, table: Found, refuse: Refuse) -> str | None:
        try:
            refuse(table)
        except UsageError as error:
            message = str(error)
            for name in known_properties():
                message = re.sub(rf"\b{name.replace('.', '_')}\b", name, message) if "." in name else message
            return in_words_of_the_file(message, self._source_options)
        return None

    def _add(self, path: Path, message: str, value: Any) -> None:
        secrets = secrets_in(value)
        if not hides(message, secrets):
            places = sorted({secret.where for secret in secrets})
            message = f"what stands in {' and '.join(places)} does not fit here"
        self._problems.add(path, _without_its_name(message, str(path[-1])))


def _place(path: Path, table: Found, message: str) -> Path:
    """The first key of the table that the message names; the table itself if there is none."""
    names = {name: (*path, name) for name in table}
    names |= {name: (*path, "kafka", name) for name in table.get("kafka", {})}
    found = [(match.start(), name) for name in names if (match := re.search(rf"(?<!\w){re.escape(name)}\b", message))]
    return names[min(found)[1]] if found else path


def _without_its_name(message: str, name: str) -> str:
    """The report begins with the name of the key already."""
    return re.sub(rf"^(?:the )?{re.escape(name)}(?:: |=| (?=must|is|cannot|names|'))", "", message)

"""The description of pipeline files agrees with the option classes, and schema and documents agree with it."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import tomllib
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparkonce.cli.main import cli
from sparkonce.participants.files import FORMATS as FILE_FORMATS
from sparkonce.participants.modes import MODES
from sparkonce.pipeline.arguments import FILE_WORDS, option_name
from sparkonce.pipeline.keys import PIPELINE, RUN, SINKS, SOURCE
from sparkonce.pipeline.schema import json_schema
from sparkonce.pipeline.shapes import Either, Shape, Table, Text
from sparkonce.records import Codec
from sparkonce.spark import FileSink, MariaDBSink, PostgresSink, StoreSink
from sparkonce.spark.sink_options import GUARANTEES, PARTITIONERS, SinkOptions
from sparkonce.spark.source_formats import FORMATS, ON_MALFORMED
from sparkonce.spark.source_options import OPTIONS
from tests.unit.pipeline_samples import ENVIRONMENT, FOLDER, RIGHT

NOT_OPTIONS = {"bootstrap_servers", "key", "value", "start", "stop", "dead_letter_topic", "isolation", "kafka"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def choices(shape: Shape) -> tuple[str, ...]:
    if isinstance(shape, Either):
        return choices(shape.shapes[0])
    assert isinstance(shape, Text)
    return shape.choices


def test_every_option_of_the_source_has_a_key() -> None:
    same = set(SOURCE.names) - NOT_OPTIONS - set(FILE_WORDS.values())
    assert {option_name(key) for key in same} == set(OPTIONS) - set(FILE_WORDS)
    assert FILE_WORDS.keys() <= set(OPTIONS)
    for word in FILE_WORDS.values():
        first, *rest = word.split(".")
        table = RUN if first == "run" else SOURCE
        assert (rest[0] if first == "run" else first) in table.names


def test_every_option_of_the_kafka_sink_has_a_key() -> None:
    fields = {field.name for field in dataclasses.fields(SinkOptions)} - {"connection"}
    assert set(SINKS["kafka"].names) == fields | {"type", "select", "bootstrap_servers", "kafka"}


@pytest.mark.parametrize(("kind", "sink"), [("postgres", PostgresSink), ("mariadb", MariaDBSink), ("files", FileSink)])
def test_every_argument_of_the_other_sinks_has_a_key(kind: str, sink: type[StoreSink]) -> None:
    own = set(inspect.signature(sink).parameters) - {"common"}
    common = set(inspect.signature(StoreSink).parameters) - {"participant"}
    assert set(SINKS[kind].names) == own | common | {"type"}


def test_choices_are_those_of_the_option_classes() -> None:
    value = SOURCE.key("value").shape
    assert isinstance(value, Table)
    assert choices(value.key("format").shape) == FORMATS
    assert choices(SOURCE.key("on_malformed").shape) == (*ON_MALFORMED, "dead-letter")
    kafka = SINKS["kafka"]
    assert choices(kafka.key("guarantee").shape) == GUARANTEES
    assert choices(kafka.key("partitioner").shape) == PARTITIONERS
    assert set(choices(kafka.key("compression").shape)) == {codec.name for codec in Codec}
    assert choices(SINKS["postgres"].key("mode").shape) == MODES
    assert choices(SINKS["files"].key("format").shape) == tuple(FILE_FORMATS)


def test_defaults_are_those_of_the_option_classes() -> None:
    for field in dataclasses.fields(SinkOptions):
        written = SINKS["kafka"].key(field.name).default if field.name != "connection" else ""
        if field.name not in ("connection", "grants_host", "grants_port"):
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            assert written == ("" if field.default is None else default), field.name
    for name, parameter in inspect.signature(PostgresSink).parameters.items():
        if name in ("mode", "lock_timeout_ms"):
            assert SINKS["postgres"].key(name).default == str(parameter.default)


# The schema.


def violations(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    """What a reader of JSON Schema would say, for the words that ours uses."""
    if "$ref" in schema:
        return violations(value, root["$defs"]["secret"], root)
    if "anyOf" in schema and all(violations(value, each, root) for each in schema["anyOf"]):
        return [f"{value!r} fits none"]
    if "oneOf" in schema and sum(not violations(value, each, root) for each in schema["oneOf"]) != 1:
        return [f"{value!r} does not fit exactly one"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{value!r} is not one of {schema['enum']}"]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (kind == "integer" and isinstance(value, bool))):
        return [f"{value!r} is not of type {kind}"]
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return [f"{value!r} does not match {schema['pattern']}"]
    if value == [] and schema.get("minItems"):
        return ["empty"]
    if "minimum" in schema and value < schema["minimum"]:
        return [f"{value} is too small"]
    return _inner_violations(value, schema, root)


def _inner_violations(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in violations(each, schema.get("items", {}), root)]
    if not isinstance(value, dict):
        return []
    found = [f"{name} is missing" for name in schema.get("required", []) if name not in value]
    names = schema.get("propertyNames", {})
    for name, each in value.items():
        found += violations(name, names, root)
        rest = schema.get("additionalProperties", {})
        inner = schema.get("properties", {}).get(name, rest)
        found += [f"{name} is unknown"] if inner is False else violations(each, inner, root)
    return found


def as_json(value: Any) -> Any:
    return json.loads(
        json.dumps(value, default=lambda each: each.isoformat() if isinstance(each, date | datetime) else 0)
    )


@pytest.mark.parametrize("file", RIGHT, ids=lambda file: file.stem)
def test_the_schema_accepts_what_the_check_accepts(file: Path) -> None:
    schema = json_schema()
    assert violations(as_json(tomllib.loads(file.read_text())), schema, schema) == []


@pytest.mark.parametrize(
    "name",
    [
        "misspelled-key",
        "wrong-table",
        "unknown-sink-type",
        "no-checkpoint",
        "no-topics",
        "empty-topics",
        "two-subscriptions",
        "text-for-a-list",
        "text-for-a-number",
        "number-for-a-flag",
        "wrong-start",
        "wrong-topic-name",
        "start-of-two-kinds",
        "misspelled-secret",
        "wrong-target",
    ],
)
def test_the_schema_refuses_what_it_can(name: str) -> None:
    schema = json_schema()
    assert violations(as_json(tomllib.loads((FOLDER / f"{name}.toml").read_text())), schema, schema)


def test_the_schema_is_printed() -> None:
    printed = CliRunner().invoke(cli, ["check", "--schema"])
    assert printed.exit_code == 0
    schema = json.loads(printed.output)
    assert list(schema["properties"]) == list(PIPELINE.names)
    descriptions = [line for line in json.dumps(schema, indent=1).splitlines() if '"description"' in line]
    assert len(descriptions) > 80

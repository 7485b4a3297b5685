"""Writes `docs/OPTIONS.md` from the code: keys of pipeline files, options of the source, arguments of sinks, commands.

What an option is for is said once, in `sparkonce/pipeline/keys.py`; names, types and defaults are those of the classes.
A test compares the page with what is generated.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from sparkonce.cli.main import cli
from sparkonce.options import known_properties
from sparkonce.pipeline.arguments import FILE_WORDS
from sparkonce.pipeline.key_table import key_tables
from sparkonce.pipeline.keys import RUN, SINKS, SOURCE
from sparkonce.pipeline.shapes import Either, Key, Shape, Table
from sparkonce.spark import FileSink, MariaDBSink, PostgresSink, StoreSink
from sparkonce.spark.sink_options import SinkOptions
from sparkonce.spark.source_options import (
    BOOTSTRAP,
    CONSUMER_PROPERTIES,
    NO_EFFECT,
    NO_EFFECT_PROPERTIES,
    OPTIONS,
    REFUSED_PROPERTIES,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "OPTIONS.md"
PYTHON_WORDS = {
    "subscribe": "topics",
    "subscribePattern": "pattern",
    "assign": "partitions",
    "startingOffsets": "start",
    "startingTimestamp": "start",
    "endingOffsets": "stop",
    "endingTimestamp": "stop",
}
"""Options of the source that `KafkaSource` calls otherwise. All others are the same in snake case."""
OWN_WORDS = {
    "startingOffsets": (
        "`latest`; bounded: `earliest`",
        'where the first start is: `earliest`, `latest`, `committed`, or `{"a": {"0": 23}}` (-2 earliest, -1 latest)',
    ),
    "startingTimestamp": ("", "the first start by time, in milliseconds since 1970"),
    "startingOffsetsByTimestamp": ("", 'the same for each topic partition: `{"a": {"0": 1700000000000}}`'),
    "startingOffsetsByTimestampStrategy": ("`error`", "or `latest`: where all records are older than the timestamp"),
    "committedOffsetsReset": ("`fail`", "or `earliest`, `latest`: where the group has committed nothing"),
    "endingOffsets": ("none; bounded: `latest`", "where the query ends: `latest`, or offsets as for the start"),
    "endingTimestamp": ("", "the end by time, in milliseconds since 1970"),
    "endingOffsetsByTimestamp": ("", "the same for each topic partition"),
    "keyFormat": ("`binary`", "what keys are: `binary`, `string` or `json`"),
    "keySchema": ("", "of JSON keys, as DDL: `id BIGINT, name STRING`"),
    "valueFormat": ("`binary`", "what values are: `binary`, `string` or `json`"),
    "valueSchema": ("", "of JSON values, as DDL"),
    "onMalformed": (
        "`fail`",
        "what becomes of keys and values that are something else: `fail`, `null`, `raw`; `dead-letter` only in "
        "`KafkaSource` and in a pipeline file",
    ),
}
"""Default and meaning of options that say in one text what a pipeline file says in a table."""
ARGUMENT_HEAD = ("argument", "type", "default", "meaning")
SHORT_TYPES = {
    "Select": "SQL expressions or a function",
    "str | Partitioner": "`str` or a function",
    "Sequence[str]": "`list[str]`",
    "str | Path": "`str` or `Path`",
}

HEAD = """\
# Every option

<!-- Made by `python tools/options_page.py`; do not edit. -->

One list of everything that can be set, made from the code itself. What the options do together is told in
[the source](SOURCE.md), [guarantees](GUARANTEES.md), [databases and files](DATABASES.md) and
[pipeline files](PIPELINES.md). An unknown name is always an error that names the nearest known one.
"""
SOURCE_TEXT = """\
`format("sparkonce")` takes the names of the first column, `KafkaSource` and the table `[source]` of a pipeline file
those of the last one; where the file has another name, it is the second one there. Times are texts such as `500ms`,
`10s`, `15m`, `1h`.
"""
PROPERTIES_TEXT = """\
Properties of Kafka's clients have Java's names. They stand behind the prefix `kafka.` in options and arguments
(`**{"kafka.security.protocol": "SSL"}`), and without it in the tables `[source.kafka]` and `kafka` of a pipeline file.
"""
SINK_TEXT = """\
`sink.start(df, checkpoint, trigger, name)` starts a streaming query; `trigger` is an interval such as `"1 second"`, or
`"available-now"`, and `name` is shown in Spark's UI. `df.writeStream.foreachBatch(sink)` does the same with Spark's own
words.
"""
ATOMIC_TEXT = """\
`AtomicSinks(sink, …)` takes any of these sinks, at most one of them a `KafkaSink`. `retries`, `grants_host` and
`grants_port` are those of the first one.
"""


def main() -> None:
    """Writes the page."""
    PAGE.write_text(options_page(), encoding="utf-8")
    print(f"{PAGE.name} is written")


def options_page() -> str:
    """The whole page."""
    source = _table(("option", "default", "meaning", "in Python and in a file"), _source_rows())
    properties = _table(("property", "of", "meaning"), _property_rows())
    commands = _table(("command", "what it does", "options"), _command_rows(cli, ()))
    parts = {
        "## Pipeline files": re.sub(r"^(### .*)$", r"\1\n", key_tables(), flags=re.MULTILINE),
        "## The source": f"{SOURCE_TEXT}\n{source}",
        "### Kafka's client properties": f"{PROPERTIES_TEXT}\n{properties}",
        "## KafkaSink": f"{SINK_TEXT}\n{_table(ARGUMENT_HEAD, _kafka_sink_rows())}",
        "## PostgresSink": _table(ARGUMENT_HEAD, _store_rows(PostgresSink, "postgres")),
        "## MariaDBSink": _table(ARGUMENT_HEAD, _store_rows(MariaDBSink, "mariadb")),
        "## FileSink": _table(ARGUMENT_HEAD, _store_rows(FileSink, "files")),
        "## AtomicSinks": ATOMIC_TEXT,
        "## Commands": commands,
    }
    return "\n".join([HEAD, *(f"{title}\n\n{text}" for title, text in parts.items())])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


# The source.


def _source_rows() -> Iterator[tuple[str, ...]]:
    yield f"`{BOOTSTRAP}`", "required", "where the cluster is", "`bootstrap_servers`"
    for option in OPTIONS:
        path = FILE_WORDS.get(option) or _snake(option)
        key = _key_at(path)
        python = PYTHON_WORDS.get(option) or _snake(option)
        names = f"`{python}`" if path == python else f"`{python}`, `{path}`"
        yield f"`{option}`", *OWN_WORDS.get(option, (_default(key), key.meaning)), names
    yield "", "", SOURCE.key("dead_letter_topic").meaning, "`dead_letter_topic`"
    yield ", ".join(f"`{option}`" for option in NO_EFFECT), "", "of the built-in source; accepted, without effect", ""


def _property_rows() -> Iterator[tuple[str, ...]]:
    for name in known_properties():
        yield f"`{name}`", "both", PROPERTY_MEANINGS[name]
    for name in CONSUMER_PROPERTIES:
        yield f"`{name}`", "source", CONSUMER_MEANINGS[name]
    for name in NO_EFFECT_PROPERTIES:
        yield f"`{name}`", "source", "accepted, without effect"
    for name, reason in REFUSED_PROPERTIES.items():
        yield f"`{name}`", "source", f"refused: {reason}"


CONSUMER_MEANINGS = {
    "group.id": "the group of `startingOffsets=committed` and of `commitOffsetsOnCheckpoint`",
    "isolation.level": "`read_committed`, the default here, or `read_uncommitted`",
    "max.partition.fetch.bytes": "how much one answer of a broker brings at most",
    "fetch.max.bytes": "the same: a request asks for one topic partition; the smaller of both counts",
    "fetch.min.bytes": "how much a broker waits for",
    "fetch.max.wait.ms": "and how long",
}
PROPERTY_MEANINGS = {
    "client.id": "how brokers call this client in their logs and metrics",
    "security.protocol": "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`",
    "sasl.mechanism": "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `GSSAPI` or `OAUTHBEARER`",
    "sasl.mechanisms": "librdkafka's name of the same",
    "sasl.jaas.config": "user and password as Java's login modules for PLAIN and SCRAM have them",
    "sasl.username": "for PLAIN and SCRAM",
    "sasl.password": "for PLAIN and SCRAM",
    "sasl.kerberos.service.name": "for GSSAPI",
    "ssl.truststore.type": "`PEM`; Java's stores cannot be read",
    "ssl.truststore.location": "a PEM file with the certificates to trust",
    "ssl.truststore.certificates": "these certificates themselves, as PEM",
    "ssl.keystore.type": "`PEM`",
    "ssl.keystore.location": "a PEM file with this client's key and certificates",
    "ssl.key.password": "of the key",
    "ssl.ca.location": "librdkafka's name of `ssl.truststore.location`",
    "ssl.certificate.location": "this client's certificates, if they are in a file of their own",
    "ssl.key.location": "this client's key, likewise",
    "ssl.endpoint.identification.algorithm": "`https`, the default, or empty: do not compare the host's name",
    "request.timeout.ms": "how long one broker may be silent",
    "default.api.timeout.ms": "how long a call tries, with all its retries",
    "socket.connection.setup.timeout.ms": "how long connecting may take",
    "retry.backoff.ms": "the pause before the first retry",
    "retry.backoff.max.ms": "the longest pause",
    "connections.max.idle.ms": "when an idle connection is closed",
    "send.buffer.bytes": "of the socket",
    "receive.buffer.bytes": "of the socket",
}


def _key_at(path: str) -> Key:
    first, *rest = path.split(".")
    if first == "run":
        return RUN.key(rest[0])
    key = SOURCE.key(first)
    return _table_in(key.shape).key(rest[0]) if rest else key


def _table_in(shape: Shape) -> Table:
    if isinstance(shape, Either):
        return next(each for each in shape.shapes if isinstance(each, Table))
    if not isinstance(shape, Table):
        raise TypeError(shape)
    return shape


def _snake(option: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", option)


# Sinks.


def _kafka_sink_rows() -> Iterator[tuple[str, ...]]:
    keys = SINKS["kafka"]
    yield "`bootstrap_servers`", "`str`", "required", keys.key("bootstrap_servers").meaning
    yield "`select`", SHORT_TYPES["Select"], "", "what of the rows it gets"
    for field in dataclasses.fields(SinkOptions):
        if field.name != "connection":
            yield _argument(field.name, str(field.type), keys.key(field.name))
    yield '`**{"kafka.…": …}`', "", "", "client properties: those above that are of both"


def _store_rows(sink: type[StoreSink], kind: str) -> Iterator[tuple[str, ...]]:
    own = [each for each in inspect.signature(sink).parameters.values() if each.name != "common"]
    common = [each for each in inspect.signature(StoreSink).parameters.values() if each.name != "participant"]
    for parameter in [*own, *common]:
        yield _argument(parameter.name, str(parameter.annotation), SINKS[kind].key(parameter.name))


def _argument(name: str, annotation: str, key: Key) -> tuple[str, str, str, str]:
    meaning = "what of the rows it gets" if name == "select" else key.meaning
    kind = SHORT_TYPES.get(annotation, f"`{annotation.removesuffix(' | None')}`")
    return f"`{name}`", kind, _default(key), meaning


def _default(key: Key) -> str:
    if key.required:
        return "required"
    return f"`{key.default}`" if key.default and " " not in key.default else key.default


# Commands.


def _command_rows(group: click.Group, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _command_rows(command, (*names, name))
        elif command is not None:
            words = " ".join(["sparkonce", *names, name, *_arguments(command)])
            yield f"`{words}`", _first_sentence(command), _options(command)


def _arguments(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            shown = parameter.human_readable_name
            yield shown if parameter.required else f"[{shown}]"


def _options(command: click.Command) -> str:
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return ", ".join(f"`{option.opts[0]}`" for option in options)


def _first_sentence(command: click.Command) -> str:
    first = " ".join((command.help or "").split("\n\n")[0].split())
    return first.split(". ")[0].rstrip(".")


if __name__ == "__main__":
    main()

"""`KafkaSource`: the source as Python code instead of options as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sparkonce.errors import UsageError
from sparkonce.fetch.lookup import find_partitions
from sparkonce.fetch.offset_maps import Offsets, nested
from sparkonce.model import TopicPartition
from sparkonce.spark.source import FORMAT, register
from sparkonce.spark.source_dead_letters import Transform, with_dead_letters
from sparkonce.spark.source_options import BOOTSTRAP, KAFKA_PREFIX, SourceOptions, source_options
from sparkonce.spark.source_values import Converter, with_functions
from sparkonce.wire import Client

StartFunction = Callable[[tuple[TopicPartition, ...]], Offsets]
Place = str | Offsets | datetime
Format = str | Converter
DEAD_LETTER = "dead-letter"


class KafkaSource:
    """Reads Kafka topics as DataFrames.

    source = KafkaSource("localhost:9092", topics="orders", start="earliest", max_offsets_per_trigger=1_000_000)
    rows = source.stream(spark)

    `start` and `stop` are "earliest", "latest", offsets of topic partitions, or a time; `start` may also be "committed"
    (of the group in the option kafka.group.id), or a function that is given the topic partitions and returns their
    offsets. A format is binary, string, json with a schema, or a function from a column of bytes to a column.

    With `on_malformed="dead-letter"` malformed records go to a topic of their own, in the transaction of the others:

    source = KafkaSource(…, value_format="json", value_schema="id BIGINT", on_malformed="dead-letter",
                         dead_letter_topic="orders-bad")
    sink.start(source.stream(spark, transform=to_the_sinks_columns), checkpoint=…)

    Further options are those of the format, in Python's spelling (`fail_on_data_loss=False`) or in their own
    (`**{"kafka.security.protocol": "SSL"}`).
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topics: str | Iterable[str] | None = None,
        pattern: str | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        start: Place | StartFunction | None = None,
        stop: Place | None = None,
        key_format: Format = "binary",
        key_schema: str | StructType | None = None,
        value_format: Format = "binary",
        value_schema: str | StructType | None = None,
        on_malformed: str = "fail",
        dead_letter_topic: str | None = None,
        **options: Any,
    ) -> None:
        self._start_function = start if callable(start) else None
        self._schemas = {"keySchema": key_schema, "valueSchema": value_schema}
        formats = {"key": key_format, "value": value_format}
        self._functions = {column: function for column, function in formats.items() if callable(function)}
        self._dead_letter_topic = dead_letter_topic
        _require_topic_for_dead_letters(on_malformed, dead_letter_topic)
        self.options = {
            BOOTSTRAP: bootstrap_servers,
            **_subscription(topics, pattern, partitions),
            **({} if start is None or callable(start) else _place("starting", start)),
            **({} if stop is None else _place("ending", stop)),
            **{f"{column}Format": "binary" if callable(wanted) else wanted for column, wanted in formats.items()},
            **{name: _simple_ddl(schema) for name, schema in self._schemas.items() if schema is not None},
            "onMalformed": "raw" if on_malformed == DEAD_LETTER else on_malformed,
            **{_option_name(name): _text(value) for name, value in options.items()},
        }
        self._parsed = source_options(self.options, streaming=True)
        if on_malformed == DEAD_LETTER:
            _require_bytes_to_be_kept(self._parsed, self._functions)
            self.options["includeHeaders"] = "true"

    def stream(self, spark: SparkSession, transform: Transform | None = None) -> DataFrame:
        """A streaming DataFrame; `transform` goes with dead letters, and makes the sink's columns of the good rows."""
        register(spark)
        return self._formatted(spark.readStream.format(FORMAT).options(**self._resolved()).load(), transform)

    def read(self, spark: SparkSession, transform: Transform | None = None) -> DataFrame:
        """What there is, as a bounded DataFrame."""
        register(spark)
        return self._formatted(spark.read.format(FORMAT).options(**self._resolved()).load(), transform)

    def _formatted(self, rows: DataFrame, transform: Transform | None) -> DataFrame:
        columns = self._parsed.columns
        converted = with_functions(rows, self._functions, columns.formats.on_malformed)
        if (transform is None) != (self._dead_letter_topic is None):
            raise UsageError(
                "dead letters and a transform go together: stream(spark, transform=…) is given the good rows, and what "
                "it returns is written together with the malformed ones"
            )
        if transform is None or self._dead_letter_topic is None:
            return converted
        return with_dead_letters(converted, transform, self._dead_letter_topic, keep_headers=columns.include_headers)

    def _resolved(self) -> dict[str, str]:
        """The options, with the offsets of a start function; a query that has a checkpoint does not look at them."""
        # Only a running Spark can write any schema as text.
        schemas = {name: schema.toDDL() for name, schema in self._schemas.items() if isinstance(schema, StructType)}
        if self._start_function is None:
            return self.options | schemas
        with Client(self._parsed.connection) as client:
            found = find_partitions(client, self._parsed.settings.subscription, client.deadline())
        return self.options | schemas | _place("starting", self._start_function(found.partitions))


def _subscription(
    topics: str | Iterable[str] | None, pattern: str | None, partitions: Iterable[TopicPartition] | None
) -> dict[str, str]:
    given: dict[str, str] = {}
    if topics is not None:
        given["subscribe"] = topics if isinstance(topics, str) else ",".join(topics)
    if pattern is not None:
        given["subscribePattern"] = pattern
    if partitions is not None:
        indexes: dict[str, list[int]] = {}
        for each in partitions:
            indexes.setdefault(each.topic, []).append(each.partition)
        given["assign"] = json.dumps(indexes)
    return given


def _place(side: str, place: Place) -> dict[str, str]:
    if isinstance(place, str):
        return {f"{side}Offsets": place}
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise UsageError(f"the {side} time {place} has no time zone; add one, for example tzinfo=timezone.utc")
        return {f"{side}Timestamp": str(int(place.timestamp() * 1000))}
    if isinstance(place, Mapping):
        return {f"{side}Offsets": json.dumps(nested(place))}
    raise UsageError(f"a place to start or stop is a text, offsets or a time, not {place!r}")


def _simple_ddl(schema: str | StructType) -> str:
    """Good enough to check the options."""
    return schema if isinstance(schema, str) else schema.simpleString()


def _require_topic_for_dead_letters(on_malformed: str, topic: str | None) -> None:
    if (on_malformed == DEAD_LETTER) != (topic is not None):
        raise UsageError(f"dead_letter_topic goes with on_malformed={DEAD_LETTER!r}, and that goes with a topic")


def _require_bytes_to_be_kept(parsed: SourceOptions, functions: Mapping[str, Converter]) -> None:
    """The source keeps the bytes of what it finds malformed itself; of what a function does not like, it cannot."""
    formats = parsed.columns.formats
    if functions and "json" in (formats.key.format, formats.value.format):
        raise UsageError(
            "dead letters have the bytes of both columns: beside a function, json cannot be the other format"
        )


def _option_name(name: str) -> str:
    """`max_offsets_per_trigger` is the option maxOffsetsPerTrigger."""
    if name.startswith(KAFKA_PREFIX):
        return name
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

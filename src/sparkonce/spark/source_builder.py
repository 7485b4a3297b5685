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
from sparkonce.spark.source_options import BOOTSTRAP, KAFKA_PREFIX, source_options
from sparkonce.spark.source_values import Format, ValueFormat, with_formats
from sparkonce.wire import Client

StartFunction = Callable[[tuple[TopicPartition, ...]], Offsets]
Place = str | Offsets | datetime


class KafkaSource:
    """Reads Kafka topics as DataFrames.

    source = KafkaSource("localhost:9092", topics="orders", start="earliest", max_offsets_per_trigger=1_000_000)
    rows = source.stream(spark)

    `start` and `stop` are "earliest", "latest", offsets of topic partitions, or a time; `start` may also be "committed"
    (of the group in the option kafka.group.id), or a function that is given the topic partitions and returns their
    offsets. Further options are those of the format, in Python's spelling (`fail_on_data_loss=False`) or in their own
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
        **options: Any,
    ) -> None:
        self._start_function = start if callable(start) else None
        self._formats = [ValueFormat("key", key_format, key_schema), ValueFormat("value", value_format, value_schema)]
        self._on_malformed = on_malformed
        self.options = {
            BOOTSTRAP: bootstrap_servers,
            **_subscription(topics, pattern, partitions),
            **({} if start is None or callable(start) else _place("starting", start)),
            **({} if stop is None else _place("ending", stop)),
            **{_option_name(name): _text(value) for name, value in options.items()},
        }
        source_options(self.options, streaming=True)

    def stream(self, spark: SparkSession) -> DataFrame:
        """A streaming DataFrame."""
        register(spark)
        return self._formatted(spark.readStream.format(FORMAT).options(**self._resolved()).load())

    def read(self, spark: SparkSession) -> DataFrame:
        """What there is, as a bounded DataFrame."""
        register(spark)
        return self._formatted(spark.read.format(FORMAT).options(**self._resolved()).load())

    def _formatted(self, rows: DataFrame) -> DataFrame:
        return with_formats(rows, self._formats, self._on_malformed)

    def _resolved(self) -> dict[str, str]:
        """The options, with the offsets of a start function; a query that has a checkpoint does not look at them."""
        if self._start_function is None:
            return self.options
        parsed = source_options(self.options, streaming=True)
        with Client(parsed.connection) as client:
            found = find_partitions(client, parsed.settings.subscription, client.deadline())
        return self.options | _place("starting", self._start_function(found.partitions))


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


def _option_name(name: str) -> str:
    """`max_offsets_per_trigger` is the option maxOffsetsPerTrigger."""
    if name.startswith(KAFKA_PREFIX):
        return name
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

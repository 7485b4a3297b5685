"""From the file's words to those of the source and the sinks: option names and texts. Reads secrets; knows no Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sparkonce.options import ConnectionOptions, known_properties
from sparkonce.pipeline.model import Format, Pipeline, Place, Scalar, Sink, Source
from sparkonce.pipeline.secret import revealed

KAFKA_PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"

FILE_WORDS = {
    "subscribe": "topics",
    "subscribePattern": "topic_pattern",
    "assign": "partitions",
    "startingOffsets": "start",
    "startingTimestamp": "start.timestamp",
    "startingOffsetsByTimestamp": "start.timestamps",
    "startingOffsetsByTimestampStrategy": "start.reset",
    "committedOffsetsReset": "start.reset",
    "endingOffsets": "stop",
    "endingTimestamp": "stop.timestamp",
    "endingOffsetsByTimestamp": "stop.timestamps",
    "keyFormat": "key.format",
    "keySchema": "key.schema",
    "valueFormat": "value.format",
    "valueSchema": "value.schema",
    "maxOffsetsPerTrigger": "run.max_offsets_per_trigger",
}
"""Options of the source that are called otherwise in the file. All others are the same in snake case."""


def option_name(key: str) -> str:
    """max_bytes_per_trigger is the option maxBytesPerTrigger."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), key)


def in_words_of_the_file(message: str, options: tuple[str, ...]) -> str:
    """A message about options, as one about keys."""
    for option in sorted(options, key=len, reverse=True):
        word = FILE_WORDS.get(option) or re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", option)
        message = re.sub(rf"(?<![\w.]){option}(?!\w)", word, message)
    return message


def source_options(source: Source) -> dict[str, str]:
    """The options of `format("sparkonce")`, but for dead letters, which only `KafkaSource` knows."""
    return {
        BOOTSTRAP: revealed(source.bootstrap_servers),
        **_subscription(source),
        **_place("starting", source.start),
        **_place("ending", source.stop),
        **_format("key", source.key),
        **_format("value", source.value),
        **{option_name(key): option_text(value) for key, value in source.options.items()},
        **({"kafka.isolation.level": source.isolation} if source.isolation else {}),
        **{f"{KAFKA_PREFIX}{name}": option_text(value) for name, value in source.kafka.items()},
        **({"kafka.group.id": revealed(source.start.committed)} if source.start and source.start.committed else {}),
    }


def _subscription(source: Source) -> dict[str, str]:
    given: dict[str, str] = {}
    if source.topics:
        given["subscribe"] = ",".join(revealed(source.topics))
    if source.topic_pattern is not None:
        given["subscribePattern"] = revealed(source.topic_pattern)
    if source.partitions:
        given["assign"] = json.dumps(source.partitions)
    return given


def _place(side: str, place: Place | None) -> dict[str, str]:
    if place is None:
        return {}
    if place.committed is not None:
        reset = {"committedOffsetsReset": place.reset} if place.reset else {}
        return {f"{side}Offsets": "committed", **reset}
    # The option's word for failing is another one here.
    strategy = {"startingOffsetsByTimestampStrategy": place.reset.replace("fail", "error")} if place.reset else {}
    if place.timestamp is not None:
        return {f"{side}Timestamp": str(_milliseconds(place.timestamp)), **strategy}
    if place.timestamps is not None:
        return {f"{side}OffsetsByTimestamp": json.dumps(place.timestamps), **strategy}
    return {f"{side}Offsets": place.word or json.dumps(place.offsets)}


def _milliseconds(moment: datetime | int) -> int:
    return moment if isinstance(moment, int) else int(moment.timestamp() * 1000)


def _format(column: str, wanted: Format | None) -> dict[str, str]:
    if wanted is None:
        return {}
    schema = {} if wanted.schema is None else {f"{column}Schema": revealed(wanted.schema)}
    return {f"{column}Format": wanted.format, **schema}


def option_text(value: Scalar) -> str:
    """Spark gives options as text."""
    return str(value).lower() if isinstance(value, bool) else str(revealed(value))


def kafka_sink_options(sink: Sink, source: Source) -> dict[str, Any]:
    """The arguments of `KafkaSink`. Without servers of its own it is in the source's cluster, reached as that is."""
    own = {name: revealed(value) for name, value in sink.options.items()}
    shared: Mapping[str, Scalar] = {}
    if "bootstrap_servers" not in own:
        own["bootstrap_servers"] = revealed(source.bootstrap_servers)
        shared = {name: value for name, value in source.kafka.items() if name in known_properties()}
    return own | {f"{KAFKA_PREFIX}{name}": option_text(value) for name, value in {**shared, **sink.kafka}.items()}


def source_connection(pipeline: Pipeline) -> ConnectionOptions:
    """How the source's cluster is reached, for tools."""
    source = pipeline.source
    properties = {name: option_text(value) for name, value in source.kafka.items() if name in known_properties()}
    return ConnectionOptions.from_properties(revealed(source.bootstrap_servers), properties)


def sink_connection(pipeline: Pipeline) -> ConnectionOptions | None:
    """How the Kafka sink's cluster is reached, for tools; None without one."""
    if pipeline.kafka_sink is None:
        return None
    given = kafka_sink_options(pipeline.kafka_sink, pipeline.source)
    properties = {name.removeprefix(KAFKA_PREFIX): v for name, v in given.items() if name.startswith(KAFKA_PREFIX)}
    return ConnectionOptions.from_properties(given["bootstrap_servers"], properties)


def spark_settings(pipeline: Pipeline) -> dict[str, str]:
    """What [run.spark] says."""
    return {name: option_text(value) for name, value in pipeline.run.spark.items()}

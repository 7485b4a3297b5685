"""The source's options: every name, every default, once. Most are those of Spark's built-in Kafka source.

Spark gives options as text, with names in lower case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.fetch import (
    AtTimestamp,
    Committed,
    Earliest,
    ExactOffsets,
    Latest,
    Position,
    ReadSettings,
    SourceSettings,
    Subscription,
    parse_assignment,
    parse_topic_names,
    parse_topic_pattern,
)
from sparkonce.fetch.offset_maps import flat
from sparkonce.options import ConnectionOptions, known_properties, reject_unknown
from sparkonce.spark.source_columns import Columns
from sparkonce.spark.source_formats import FORMATS, ON_MALFORMED, ColumnFormat, RecordFormats
from sparkonce.wire import Isolation

KAFKA_PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"

OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "committedOffsetsReset",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "keyFormat",
    "keySchema",
    "valueFormat",
    "valueSchema",
    "onMalformed",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
    "partitionDiscoveryInterval",
    "commitOffsetsOnCheckpoint",
    "maxEventTimeDrift",
    "idleTimeout",
)

NO_EFFECT = ("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix")
"""Options of the built-in source about how its Java consumers work, which are not here; accepted so that a job can
change its format name and nothing else. One deadline takes the place of the retries."""

CONSUMER_PROPERTIES = (
    "group.id",
    "isolation.level",
    "max.partition.fetch.bytes",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.max.wait.ms",
)
NO_EFFECT_PROPERTIES = (
    "check.crcs",
    "client.rack",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "session.timeout.ms",
)
REFUSED_PROPERTIES = {
    "auto.offset.reset": "the option startingOffsets says where to start",
    "enable.auto.commit": "offsets are kept in Spark's checkpoint",
    "interceptor.classes": "interceptors are Java classes",
    "key.deserializer": "deserializers are Java classes; the option keyFormat says what keys are",
    "value.deserializer": "deserializers are Java classes; the option valueFormat says what values are",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """How a source reads."""

    connection: ConnectionOptions
    settings: SourceSettings
    columns: Columns


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Options as a user writes them; anything wrong is an error that says what and what to write instead."""
    own, properties = _by_kind(given)
    bootstrap = given.get(BOOTSTRAP)
    if not bootstrap:
        raise UsageError(f"the option {BOOTSTRAP} is missing: where is Kafka?")
    connection = {name: text for name, text in properties.items() if name in known_properties()}
    settings = SourceSettings(
        subscription=_subscription(own),
        starting=_starting(own, properties, streaming=streaming),
        ending=_ending(own, streaming=streaming),
        max_offsets=_positive(own, "maxOffsetsPerTrigger"),
        max_bytes=_positive(own, "maxBytesPerTrigger"),
        min_offsets=_positive(own, "minOffsetsPerTrigger"),
        min_partitions=_positive(own, "minPartitions"),
        max_partitions=_max_partitions(own),
        max_records_per_partition=_positive(own, "maxRecordsPerPartition"),
        max_event_time_drift_ms=_duration_ms(own, "maxEventTimeDrift"),
        commit_group=_commit_group(own, properties),
        read=_read_settings(own, properties),
        **_given(
            max_trigger_delay_ms=_duration_ms(own, "maxTriggerDelay"),
            discovery_interval_ms=_duration_ms(own, "partitionDiscoveryInterval"),
            idle_timeout_ms=_duration_ms(own, "idleTimeout"),
        ),
    )
    return SourceOptions(
        connection=ConnectionOptions.from_properties(bootstrap, connection),
        settings=settings,
        columns=Columns(include_headers=_flag(own, "includeHeaders", default=False), formats=_formats(own)),
    )


def _max_partitions(own: Mapping[str, str]) -> int | None:
    most, least = _positive(own, "maxPartitions"), _positive(own, "minPartitions")
    if most is not None and "maxRecordsPerPartition" in own:
        raise UsageError("maxPartitions merges and maxRecordsPerPartition cuts: give one of them")
    if most is not None and least is not None and most < least:
        raise UsageError(f"maxPartitions ({most}) is less than minPartitions ({least})")
    return most


def _by_kind(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options under the names that are written here, and `kafka.*` properties without the prefix."""
    known = {name.lower(): name for name in (*OPTIONS, *NO_EFFECT)}
    own: dict[str, str] = {}
    properties: dict[str, str] = {}
    for name, text in given.items():
        lower = name.lower()
        if lower == BOOTSTRAP:
            continue
        if lower.startswith(KAFKA_PREFIX):
            properties[lower.removeprefix(KAFKA_PREFIX)] = text
        else:
            own[known.get(lower, name)] = text
    reject_unknown(own, [*OPTIONS, *NO_EFFECT, BOOTSTRAP], what="source option")
    for name, reason in REFUSED_PROPERTIES.items():
        if name in properties:
            raise UsageError(f"the option {KAFKA_PREFIX}{name} cannot be used: {reason}")
    reject_unknown(
        properties, [*known_properties(), *CONSUMER_PROPERTIES, *NO_EFFECT_PROPERTIES], what="Kafka property"
    )
    return own, properties


def _subscription(own: Mapping[str, str]) -> Subscription:
    parsers: dict[str, Callable[[str], Subscription]] = {
        "subscribe": parse_topic_names,
        "subscribePattern": parse_topic_pattern,
        "assign": parse_assignment,
    }
    chosen = [name for name in parsers if name in own]
    if len(chosen) != 1:
        found = f"not {' and '.join(chosen)} together" if chosen else "none is given"
        raise UsageError(f"say what to read with one of subscribe, subscribePattern and assign; {found}")
    return parsers[chosen[0]](own[chosen[0]])


def _starting(own: Mapping[str, str], properties: Mapping[str, str], *, streaming: bool) -> Position:
    latest_if_none = _one_of(own, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"
    by_time = _by_timestamp(own, "starting", latest_if_none=latest_if_none)
    if by_time is not None:
        return by_time
    text = own.get("startingOffsets", "latest" if streaming else "earliest").strip()
    if text.lower() == "committed":
        return _committed(own, properties)
    position = _position("startingOffsets", text)
    if not streaming and (position == Latest() or _has_offset(position, -1)):
        raise UsageError("startingOffsets cannot be latest (-1) in a bounded read: there would be nothing to read")
    return position


def _committed(own: Mapping[str, str], properties: Mapping[str, str]) -> Committed:
    group = _group(properties, "startingOffsets is committed")
    reset = _one_of(own, "committedOffsetsReset", ("fail", "earliest", "latest"), "fail")
    otherwise: dict[str, Earliest | Latest] = {"earliest": Earliest(), "latest": Latest()}
    return Committed(group, otherwise.get(reset))


def _group(properties: Mapping[str, str], why: str) -> str:
    if not properties.get("group.id"):
        raise UsageError(f"{why}: the option kafka.group.id must say of which group")
    return properties["group.id"]


def _commit_group(own: Mapping[str, str], properties: Mapping[str, str]) -> str | None:
    wanted = _flag(own, "commitOffsetsOnCheckpoint", default=False)
    return _group(properties, "commitOffsetsOnCheckpoint is true") if wanted else None


def _ending(own: Mapping[str, str], *, streaming: bool) -> Position | None:
    by_time = _by_timestamp(own, "ending", latest_if_none=True)
    if by_time is not None:
        return by_time
    if streaming and "endingOffsets" not in own:
        return None
    position = _position("endingOffsets", own.get("endingOffsets", "latest").strip())
    if position == Earliest() or _has_offset(position, -2):
        raise UsageError("endingOffsets cannot be earliest (-2): there would be nothing to read")
    return position


def _by_timestamp(own: Mapping[str, str], side: str, *, latest_if_none: bool) -> AtTimestamp | None:
    """As in the built-in source, one timestamp goes before timestamps of each, and these before offsets."""
    for_all, of_each = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    if for_all in own:
        return AtTimestamp(for_all_ms=_whole_number(for_all, own[for_all]), latest_if_none=latest_if_none)
    if of_each in own:
        moments = flat(_json(of_each, own[of_each]), of_each)
        return AtTimestamp(of_each_ms=moments, latest_if_none=latest_if_none)
    return None


def _position(name: str, text: str) -> Position:
    if text.lower() == "earliest":
        return Earliest()
    if text.lower() == "latest":
        return Latest()
    if not text.startswith("{"):
        raise UsageError(f'{name} must be earliest, latest or offsets such as {{"topic": {{"0": 23}}}}, not {text!r}')
    offsets = flat(_json(name, text), name)
    below = [f"{partition}: {offset}" for partition, offset in offsets.items() if offset < -2]
    if below:
        raise UsageError(f"{name}: {below[0]} is no offset; only -1 (latest) and -2 (earliest) may be below zero")
    return ExactOffsets(offsets)


def _has_offset(position: Position, offset: int) -> bool:
    return isinstance(position, ExactOffsets) and offset in position.offsets.values()


def _read_settings(own: Mapping[str, str], properties: Mapping[str, str]) -> ReadSettings:
    isolations = {"read_committed": Isolation.READ_COMMITTED, "read_uncommitted": Isolation.READ_UNCOMMITTED}
    isolation = _one_of(properties, "isolation.level", tuple(isolations), "read_committed")
    # A request asks for one topic partition only, so that Kafka's limit for all of them is just another one.
    limits = [_positive(properties, name) for name in ("max.partition.fetch.bytes", "fetch.max.bytes")]
    fetch_bytes = min((limit for limit in limits if limit is not None), default=None)
    return ReadSettings(
        isolation=isolations[isolation],
        fail_on_data_loss=_flag(own, "failOnDataLoss", default=True),
        **_given(
            fetch_bytes=fetch_bytes,
            min_bytes=_positive(properties, "fetch.min.bytes"),
            max_wait_ms=_positive(properties, "fetch.max.wait.ms"),
        ),
    )


def _formats(own: Mapping[str, str]) -> RecordFormats:
    return RecordFormats(
        key=_column_format(own, "key"),
        value=_column_format(own, "value"),
        on_malformed=_one_of(own, "onMalformed", ON_MALFORMED, "fail"),
    )


def _column_format(own: Mapping[str, str], column: str) -> ColumnFormat:
    return ColumnFormat(column, _one_of(own, f"{column}Format", FORMATS, "binary"), own.get(f"{column}Schema"))


# Texts to values.


def _given(**values: Any) -> dict[str, Any]:
    """Without those that are None, so that the default that is written elsewhere holds."""
    return {name: value for name, value in values.items() if value is not None}


def _flag(own: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = own.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name} must be true or false, not {own[name]!r}")
    return text == "true"


def _one_of(own: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    text = own.get(name, default).strip().lower()
    if text not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(allowed)}, not {own[name]!r}")
    return text


def _whole_number(name: str, text: str) -> int:
    if not re.fullmatch(r"-?\d+", text.strip()):
        raise UsageError(f"{name} must be a whole number, not {text!r}")
    return int(text)


def _positive(own: Mapping[str, str], name: str) -> int | None:
    if name not in own:
        return None
    number = _whole_number(name, own[name])
    if number <= 0:
        raise UsageError(f"{name} must be above 0, not {number}")
    return number


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(own: Mapping[str, str], name: str) -> int | None:
    """Reads 500ms, 10s, 15m, 1h; a number alone is milliseconds, as Spark takes it."""
    if name not in own:
        return None
    match = re.fullmatch(r"(\d+)\s*(\w*)", own[name].strip().lower())
    if match is None or (match[2] or "ms") not in _UNITS_MS:
        raise UsageError(f"{name} must be a time such as 500ms, 10s, 15m or 1h, not {own[name]!r}")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name} is not JSON: {error}") from error

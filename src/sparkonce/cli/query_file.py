"""From a pipeline file to what the tools must know of its query. Reads secrets, connects to nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from sparkonce.commit import Participant
from sparkonce.errors import UsageError
from sparkonce.fetch import Assignment, Subscription, TopicNames, parse_topic_pattern
from sparkonce.model import TopicPartition
from sparkonce.ops import KafkaSinkTarget, Query, SourceTarget, StoreTarget
from sparkonce.participants import FileParticipant
from sparkonce.pipeline import Pipeline, Sink, Source, load
from sparkonce.pipeline.arguments import kafka_sink_options, sink_connection, source_connection, spark_settings
from sparkonce.pipeline.keys import SINKS
from sparkonce.pipeline.model import located
from sparkonce.pipeline.secret import revealed
from sparkonce.wire import Isolation

_UNKNOWN_CORES = 2


def load_query(file: Path) -> Query:
    """The query of a pipeline file; PipelineError with every problem of the file."""
    return query_of(load(file))


def query_of(pipeline: Pipeline) -> Query:
    """The query of a pipeline."""
    master = str(revealed(pipeline.run.master))
    stores = tuple(_store(sink, pipeline) for sink in pipeline.sinks if sink.type != "kafka")
    return Query(
        name=str(revealed(pipeline.name)),
        checkpoint=located(revealed(pipeline.checkpoint), pipeline.folder),
        source=_source(pipeline),
        sink=_kafka_sink(pipeline),
        stores=stores,
        branches=_parallelism(master, spark_settings(pipeline)),
        master=master,
    )


def _source(pipeline: Pipeline) -> SourceTarget:
    source = pipeline.source
    start = source.start.committed if source.start is not None else None
    shown = source.kafka.get("group.id") if source.options.get("commit_offsets_on_checkpoint") else None
    uncommitted = source.isolation == "read_uncommitted"
    return SourceTarget(
        connection=source_connection(pipeline),
        subscription=_subscription(source),
        isolation=Isolation.READ_UNCOMMITTED if uncommitted else Isolation.READ_COMMITTED,
        start_group=revealed(start),
        shown_group=revealed(shown)
        or (revealed(start) if source.options.get("commit_offsets_on_checkpoint") else None),
        dead_letter_topic=revealed(source.dead_letter_topic),
    )


def _subscription(source: Source) -> Subscription:
    if source.topic_pattern is not None:
        return parse_topic_pattern(revealed(source.topic_pattern))
    if source.partitions:
        named = [TopicPartition(topic, index) for topic, indexes in source.partitions.items() for index in indexes]
        return Assignment(tuple(sorted(named)))
    return TopicNames(tuple(revealed(source.topics)))


def _kafka_sink(pipeline: Pipeline) -> KafkaSinkTarget | None:
    sink, connection = pipeline.kafka_sink, sink_connection(pipeline)
    if sink is None or connection is None:
        return None
    given = kafka_sink_options(sink, pipeline.source)
    return KafkaSinkTarget(
        connection=connection,
        topic=given.get("topic"),
        guarantee=given.get("guarantee") or default_of("guarantee"),
        transactional_id=given.get("transactional_id"),
        transaction_timeout_ms=int(given.get("transaction_timeout_ms") or default_of("transaction_timeout_ms")),
        batch_bytes=int(given.get("batch_bytes") or default_of("batch_bytes")),
        offsets_group=given.get("offsets_group"),
    )


def default_of(name: str) -> str:
    """The default of a Kafka sink's key, from the description of pipeline files: it is not written here again."""
    return next(str(key.default) for key in SINKS["kafka"].keys if key.name == name)


def _store(sink: Sink, pipeline: Pipeline) -> StoreTarget:
    given = dict(revealed(dict(sink.options)))
    prepares = sink.type in ("postgres", "mariadb") and given.get("mode") != "idempotent"
    name = f"{sink.type} {given.get('table') or given.get('path')}"
    try:
        participant = _participant(sink.type, given, pipeline.folder)
        return StoreTarget(name=participant.name, participant=participant, prepares=prepares)
    except UsageError as error:
        return StoreTarget(name=name, prepares=prepares, problem=str(error))


def _participant(kind: str, given: dict[str, Any], folder: Path) -> Participant:
    own = {key: given[key] for key in ("table", "mode", "keys", "name", "lock_timeout_ms") if key in given}
    if kind == "postgres":
        from sparkonce.participants.postgres import postgres_participant  # noqa: PLC0415  Needs an extra.

        return postgres_participant(given["dsn"], **own)
    if kind == "mariadb":
        from sparkonce.participants.mariadb import mariadb_participant  # noqa: PLC0415  Needs an extra.

        return mariadb_participant(given["url"], **own)
    return FileParticipant(Path(located(given["path"], folder)), given.get("format", "parquet"))


def _parallelism(master: str, settings: dict[str, str]) -> int:
    """How many tasks run at a time, as far as the file tells: that many branches a store must allow."""
    if settings.get("spark.default.parallelism", "").isdecimal():
        return int(settings["spark.default.parallelism"])
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if local is None:
        return _UNKNOWN_CORES
    return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)

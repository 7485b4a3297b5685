"""A pipeline in one line, for people. Shows no secret and no address of a database, which may hold a password."""

from __future__ import annotations

from sparkonce.pipeline.model import Pipeline, Sink, Source, Transform


def summary(pipeline: Pipeline) -> str:
    """name: source → transform → sinks."""
    transform = _transform(pipeline.transform)
    sinks = " and ".join(_sink(sink) for sink in pipeline.sinks)
    return f"{pipeline.name}: {_source(pipeline.source)} → {transform}{sinks}"


def _source(source: Source) -> str:
    if source.topics:
        return f"Kafka {', '.join(str(topic) for topic in source.topics)}"
    if source.topic_pattern is not None:
        return f"Kafka topics like {source.topic_pattern}"
    return f"Kafka partitions of {', '.join(source.partitions)}"


def _transform(transform: Transform | None) -> str:
    if transform is None:
        return ""
    return "SQL → " if transform.sql is not None else f"{transform.python or transform.arrow} → "


def _sink(sink: Sink) -> str:
    options = sink.options
    if sink.type == "kafka":
        guarantee = options.get("guarantee", "exactly-once")
        return f"Kafka {options.get('topic', 'topics of the rows')} ({guarantee})"
    if sink.type == "files":
        return f"files {options['path']}"
    return f"{'PostgreSQL' if sink.type == 'postgres' else 'MariaDB'} {options['table']}"

"""What the parts of a pipeline file must be to one another. Each rule looks at what was found right so far."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.pipeline.problems import Problems, listed, nearest
from sparkonce.pipeline.trigger import require_trigger

Found = dict[str, Any]
Rule = Callable[[Found, Problems], None]
MARKER_GROUP_PREFIX = "sparkonce."


def sinks_of(found: Found, kind: str | None = None) -> Iterator[tuple[int, Found]]:
    """The sinks that could be read, each with its place."""
    for index, sink in enumerate(found.get("sink", [])):
        if isinstance(sink, dict) and kind in (None, sink.get("type")):
            yield index, sink


def one_kafka_sink(found: Found, problems: Problems) -> None:
    """One query has one Kafka transaction."""
    for index, _ in list(sinks_of(found, "kafka"))[1:]:
        problems.add(
            ("sink", index, "type"),
            "is another Kafka sink; one query has one Kafka transaction, so keep one of them, and give rows a column "
            "topic to write to several topics",
        )


def several_sinks_are_exactly_once(found: Found, problems: Problems) -> None:
    """Sinks that share one decision need one."""
    if len(found.get("sink", [])) < 2:
        return
    for index, sink in sinks_of(found, "kafka"):
        guarantee = sink.get("guarantee", "exactly-once")
        if guarantee != "exactly-once":
            problems.add(
                ("sink", index, "guarantee"),
                f'is "{guarantee}"; several sinks are written together or not at all, which needs "exactly-once"',
            )


def sinks_differ(found: Found, problems: Problems) -> None:
    """Two sinks in one place have one name, and branches could not be told apart."""
    seen: dict[tuple[Any, ...], int] = {}
    for index, sink in sinks_of(found):
        kind = sink["type"]
        place = (kind, sink.get("path"), sink.get("dsn"), sink.get("url"), sink.get("table"), sink.get("name"))
        if kind == "kafka" or (kind != "files" and "table" not in sink):
            continue
        if place in seen:
            remedy = "write to another path" if kind == "files" else "give one of them a name"
            problems.add(("sink", index), f"writes to the same place as sink {seen[place] + 1}; {remedy}")
        seen.setdefault(place, index)


def marker_group_is_ours(found: Found, problems: Problems) -> None:
    """The marker of a micro-batch is an offset of a group of its own."""
    for index, sink in sinks_of(found, "kafka"):
        marker = f"{MARKER_GROUP_PREFIX}{sink.get('transactional_id')}"
        if sink.get("offsets_group") == marker:
            problems.add(
                ("sink", index, "offsets_group"),
                f'is "{marker}", the group in which the sink keeps its own marker; choose another name',
            )


def output_is_not_input(found: Found, problems: Problems) -> None:
    """A query that reads what it writes never ends."""
    source = found.get("source", {})
    servers, topics = source.get("bootstrap_servers"), source.get("topics", [])
    for index, sink in sinks_of(found, "kafka"):
        if sink.get("topic") in topics and sink.get("bootstrap_servers", servers) == servers:
            problems.add(("sink", index, "topic"), f'is "{sink["topic"]}", which the source reads: it would never end')
    if source.get("dead_letter_topic") in topics:
        problems.add(
            ("source", "dead_letter_topic"),
            f'is "{source["dead_letter_topic"]}", which the source reads: malformed records would go round and round',
        )


def kafka_gets_its_columns(found: Found, problems: Problems) -> None:
    """The rows of the source have columns that Kafka has no place for."""
    for index, sink in sinks_of(found, "kafka"):
        given = "select" in sink or "transform" in found or problems.about("sink", index, "select")
        if not given and not problems.below("transform") and not problems.about("source", "dead_letter_topic"):
            problems.add(
                ("sink", index),
                "would get the rows as they are read, with columns such as offset that Kafka has no place for; add "
                'select = ["key", "value"], or a [transform]',
            )


def kafka_gets_a_topic(found: Found, problems: Problems) -> None:
    """From the sink, or from a column."""
    transform = found.get("transform", {})
    for index, sink in sinks_of(found, "kafka"):
        # What a function gives is not known before it runs.
        texts = texts_of(sink.get("select")) or texts_of(transform.get("sql"))
        known = texts and not any(problems.about("sink", index, key) for key in ("topic", "topics"))
        if "topic" not in sink and known and not mentions(texts, "topic"):
            problems.add(("sink", index), "topic is missing, and no column topic is selected")


def stop_is_after_start(found: Found, problems: Problems) -> None:
    """Where both are offsets, or both are times."""
    source = found.get("source", {})
    start, stop = source.get("start"), source.get("stop")
    if not isinstance(start, dict) or not isinstance(stop, dict):
        return
    for topic, partitions in start.get("offsets", {}).items():
        for partition, first in partitions.items():
            last = stop.get("offsets", {}).get(topic, {}).get(partition, first)
            if 0 <= last < first:
                problems.add(("source", "stop"), f"of {topic}-{partition} is {last}, before its start {first}")
    first, last = start.get("timestamp"), stop.get("timestamp")
    if type(first) is type(last) and first is not None and last < first:
        problems.add(("source", "stop"), f"is {last}, before the start {first}")


def places_are_of_topics_that_are_read(found: Found, problems: Problems) -> None:
    """Offsets of a topic that is not read are a slip of the pen."""
    source = found.get("source", {})
    topics = source.get("topics") or list(source.get("partitions", {}))
    if not topics or not all(isinstance(topic, str) for topic in topics) or problems.below("source", "topics"):
        return
    for side in ("start", "stop"):
        place = source.get(side)
        for kind in ("offsets", "timestamps"):
            for topic in place.get(kind, {}) if isinstance(place, dict) else ():
                if topic not in topics:
                    near = nearest(topic, topics)
                    hint = f"did you mean {near}?" if near else f"read are {listed(topics)}"
                    problems.add(("source", side, kind, topic), f"is not read; {hint}")


def malformed_needs_a_format(found: Found, problems: Problems) -> None:
    """Bytes are never malformed."""
    source = found.get("source", {})
    if problems.below("source", "value") or problems.below("source", "key"):
        return
    formats = {source.get(column, {}).get("format", "binary") for column in ("key", "value")}
    for key in ("dead_letter_topic", "on_malformed"):
        if key in source and source[key] != "fail" and formats == {"binary"}:
            problems.add(
                ("source", key), 'has no use while keys and values are raw; add value = { format = "json", … }'
            )
            return


def dead_letters_reach_kafka(found: Found, problems: Problems) -> None:
    """They are rows with columns value, key, topic and headers, beside those of the transform."""
    source = found.get("source", {})
    if "dead_letter_topic" not in source or problems.below("sink"):
        return
    kafka = list(sinks_of(found, "kafka"))
    if not kafka:
        problems.add(("source", "dead_letter_topic"), "needs a Kafka sink, which writes the malformed records")
    elif "transform" not in found and not problems.below("transform"):
        problems.add(
            ("source", "dead_letter_topic"),
            "needs a [transform] that makes the columns of the Kafka sink of the good records, such as "
            'sql = "SELECT key, to_json(value) AS value FROM source"',
        )
    for index, sink in kafka:
        texts = texts_of(sink.get("select"))
        if texts and not (mentions(texts, "topic") and mentions(texts, "headers")):
            problems.add(
                ("sink", index, "select"),
                "leaves out topic or headers, without which dead letters cannot be told from other records; select "
                "them too, or do it in [transform]",
            )


def queries_read_their_view(found: Found, problems: Problems) -> None:
    """A query over something else would not be part of the stream."""
    transform = found.get("transform", {})
    if isinstance(transform.get("sql"), str) and not mentions([transform["sql"]], "source"):
        problems.add(("transform", "sql"), "does not mention source, the view of what is read: SELECT … FROM source")
    for index, sink in sinks_of(found):
        select = sink.get("select")
        path: tuple[str | int, ...] = ("sink", index, "select")
        if isinstance(select, dict):
            select, path = select.get("sql"), (*path, "sql")
        if isinstance(select, str) and not mentions([select], "rows"):
            problems.add(path, f"does not mention rows, the view of what the sink is given: {example_of(select)}")


def arrow_has_a_schema(found: Found, problems: Problems) -> None:
    """Spark must know the columns before the function runs."""
    transform = found.get("transform", {})
    if "arrow" in transform and "schema" not in transform and not problems.about("transform", "schema"):
        problems.add(
            ("transform", "arrow"), 'needs schema beside it: the columns it gives, such as "key BINARY, value BINARY"'
        )
    if "schema" in transform and ("sql" in transform or "python" in transform):
        problems.add(("transform", "schema"), "goes with arrow only; the columns of sql and python are known")


def one_group(found: Found, problems: Problems) -> None:
    """What is said in two places must be the same."""
    source = found.get("source", {})
    start, kafka = source.get("start"), source.get("kafka", {})
    if (
        isinstance(start, dict)
        and "committed" in start
        and kafka.get("group.id", start["committed"]) != start["committed"]
    ):
        problems.add(("source", "kafka", "group.id"), "is another group than that of start; leave it out")
    if "isolation" in source and "isolation.level" in kafka:
        problems.add(("source", "kafka", "isolation.level"), "is said by isolation already; leave it out")


def reset_fits_the_start(found: Found, problems: Problems) -> None:
    """What to do where there is nothing is a matter of groups and times."""
    start = found.get("source", {}).get("start")
    if not isinstance(start, dict) or "reset" not in start:
        return
    if "offsets" in start:
        problems.add(("source", "start", "reset"), "has no use beside offsets; it goes with committed and timestamp")
    elif "committed" not in start and start["reset"] == "earliest":
        problems.add(
            ("source", "start", "reset"),
            'is "earliest"; expected "fail" or "latest", for partitions whose records are all older than the time',
        )


def trigger_can_be_read(found: Found, problems: Problems) -> None:
    """By Spark."""
    trigger = found.get("run", {}).get("trigger")
    if isinstance(trigger, str):
        try:
            require_trigger(trigger)
        except UsageError as error:
            problems.add(("run", "trigger"), str(error))


def texts_of(select: Any) -> list[str]:
    """The SQL of a selection; none of a function."""
    if isinstance(select, dict):
        select = select.get("sql")
    if isinstance(select, str):
        return [select]
    return [text for text in select if isinstance(text, str)] if isinstance(select, list) else []


def mentions(texts: list[str], word: str) -> bool:
    """Whether the word is somewhere in the SQL; a star may be anything, in a list of columns."""
    star = word != "source" and word != "rows" and any(re.search(r"(?:^|[\s,.])\*", text) for text in texts)
    return star or any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for text in texts)


def example_of(select: str) -> str:
    """What a person who wrote one expression instead of a list of them may have meant."""
    plain = re.fullmatch(r"[\w\s,.]*", select) and not re.match(r"\s*select\b", select, re.IGNORECASE)
    query = "SELECT … FROM rows"
    if not plain:
        return query
    names = [f'"{name.strip()}"' for name in select.split(",")]
    return f"{query}; or write select = [{', '.join(names)}]"


EARLY_RULES: tuple[Rule, ...] = (reset_fits_the_start,)
"""Before the option classes are asked, which would say it in other words."""

RULES: tuple[Rule, ...] = (
    one_kafka_sink,
    several_sinks_are_exactly_once,
    sinks_differ,
    marker_group_is_ours,
    output_is_not_input,
    stop_is_after_start,
    places_are_of_topics_that_are_read,
    malformed_needs_a_format,
    dead_letters_reach_kafka,
    kafka_gets_its_columns,
    kafka_gets_a_topic,
    queries_read_their_view,
    arrow_has_a_schema,
    one_group,
    trigger_can_be_read,
)

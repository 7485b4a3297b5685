"""Pipeline files in Spark, from one topic to others, judged by librdkafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sparkonce import UsageError, published_files
from sparkonce.devbroker import DevBroker
from sparkonce.pipeline import load
from sparkonce.pipeline.build import start
from tests.broker.fetch_samples import producer_of, rows_by_librdkafka, send
from tests.broker.wire_samples import values_in
from tests.conftest import TopicFactory

COUNT = 100
COPY = 'sql = "SELECT key, value FROM source"'


def file_of(folder: Path, broker: DevBroker, source: str, target: str, /, **parts: str) -> Path:
    """A pipeline file; `parts` are lines for its tables."""
    file = folder / "orders.toml"
    file.write_text(
        f"""
name = "orders"
checkpoint = "checkpoints/orders"
[source]
bootstrap_servers = "{broker.bootstrap_servers}"
topics = ["{source}"]
start = "earliest"
{parts.get("source", "")}
{f"[transform]{chr(10)}{parts['transform']}" if "transform" in parts else ""}
[[sink]]
type = "kafka"
topic = "{target}"
transactional_id = "{target}"
{parts.get("sink", "")}
{parts.get("more", "")}
[run]
trigger = "1 second"
{parts.get("run", "")}
"""
    )
    return file


def run_once(spark: SparkSession, file: Path, **more: Any) -> list[dict[str, Any]]:
    """Runs the pipeline over what is there; gives the progress of the micro-batches that had rows."""
    query, sink = start(spark, load(file), once=True, **more)
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
        sink.close()
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def orders(broker: DevBroker, topic: str, first: int = 0, count: int = COUNT) -> None:
    send(producer_of(broker), topic, [b'{"id": %d, "amount": %d}' % (n, n % 10) for n in range(first, first + count)])


def test_sql_over_json_into_kafka_and_files(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    source, target = topic(broker), topic(broker, partitions=2)
    orders(broker, source)
    file = file_of(
        tmp_path,
        broker,
        source,
        target,
        source='value = { format = "json", schema = "id BIGINT, amount DOUBLE" }',
        transform='sql = "SELECT value.id AS id, value.amount AS amount FROM source WHERE value.amount >= 5"',
        sink='select = "SELECT CAST(id AS STRING) AS key, CAST(amount AS STRING) AS value FROM rows"',
        more='[[sink]]\ntype = "files"\npath = "archive"\nselect = ["id", "amount * 2 AS twice"]',
        run="max_offsets_per_trigger = 30",
    )
    done = run_once(spark, file)
    assert [progress["name"] for progress in done] == ["orders"] * 4
    wanted = [n for n in range(COUNT) if n % 10 >= 5]
    found = rows_by_librdkafka(broker, target, 2)
    assert sorted((int(row.key or b""), float(row.value or b"")) for row in found) == [(n, n % 10) for n in wanted]
    archived = [row for path in published_files(tmp_path / "archive") for row in pq.read_table(path).to_pylist()]
    assert sorted((row["id"], row["twice"]) for row in archived) == [(n, 2 * (n % 10)) for n in wanted]
    # The paths of the file are relative to it.
    assert (tmp_path / "checkpoints" / "orders" / "commits").is_dir()


def test_a_second_run_goes_on(spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> None:
    source, target = topic(broker), topic(broker)
    file = file_of(tmp_path, broker, source, target, transform=COPY)
    for first in (0, COUNT):
        orders(broker, source, first)
        # More than the file says, for this run only.
        assert len(run_once(spark, file, max_offsets_per_trigger=COUNT // 2)) == 2
    assert [json.loads(value)["id"] for value in values_in(broker, target, 1)] == list(range(2 * COUNT))


PYTHON = """
from pyspark.sql import DataFrame
from pyspark.sql.functions import pandas_udf
import {name}_words

@pandas_udf("string")
def shouted(values):
    return values.map({name}_words.shout)

def transform(rows: DataFrame) -> DataFrame:
    return rows.select("key", shouted(rows.value.cast("string")).alias("value"))

def nothing(rows):
    return None

def kept(rows):
    return rows.where("value LIKE '%7!'")

def last(arrow_batch, count):
    import pyarrow as pa
    return pa.array([count - 1] * arrow_batch.num_rows, pa.int32())

number = 5
"""
ARROW = """
import pyarrow as pa
import pyarrow.compute as pc
from {name}_words import shout

def transform(batches):
    for batch in batches:
        values = [shout(value.decode()).encode() for value in batch["value"].to_pylist()]
        yield pa.RecordBatch.from_arrays([batch["key"], pa.array(values, pa.binary())], ["key", "value"])
"""
WORDS = "def shout(text):\n    return text + '!'\n"


def modules(folder: Path, name: str, text: str) -> None:
    """Two modules beside the file, one of which imports the other; workers cannot import either."""
    (folder / f"{name}.py").write_text(text.format(name=name))
    (folder / f"{name}_words.py").write_text(WORDS)


@pytest.mark.parametrize(
    ("name", "text", "transform"),
    [
        ("shouting_python", PYTHON, 'python = "shouting_python:transform"'),
        ("shouting_arrow", ARROW, 'arrow = "shouting_arrow:transform"\nschema = "key BINARY, value BINARY"'),
    ],
    ids=["python", "arrow"],
)
def test_functions_beside_the_file(
    name: str, text: str, transform: str, spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    source, target = topic(broker), topic(broker)
    send(producer_of(broker), source, [b"%d" % n for n in range(COUNT)])
    modules(tmp_path, name, text)
    run_once(spark, file_of(tmp_path, broker, source, target, transform=transform))
    assert values_in(broker, target, 1) == [b"%d!" % n for n in range(COUNT)]


def test_functions_of_a_sink(spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> None:
    source, target = topic(broker), topic(broker, partitions=3)
    send(producer_of(broker), source, [b"%d" % n for n in range(COUNT)])
    modules(tmp_path, "of_a_sink", PYTHON)
    file = file_of(
        tmp_path,
        broker,
        source,
        target,
        transform='python = "of_a_sink:transform"',
        sink='select = { python = "of_a_sink:kept" }\npartitioner = { python = "of_a_sink:last" }',
    )
    run_once(spark, file)
    found = rows_by_librdkafka(broker, target, 3)
    assert [row.value for row in found] == [b"%d!" % n for n in range(COUNT) if n % 10 == 7]
    assert {row.partition for row in found} == {2}


def test_rows_as_they_are_and_secrets(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = topic(broker), topic(broker)
    send(producer_of(broker), source, [b"one", b"two"])
    monkeypatch.setenv("SPARKONCE_TEST_TARGET", target)
    file = file_of(tmp_path, broker, source, "named-elsewhere", sink='select = ["value"]')
    file.write_text(file.read_text().replace('"named-elsewhere"', '{ env = "SPARKONCE_TEST_TARGET" }'))
    run_once(spark, file)
    assert values_in(broker, target, 1) == [b"one", b"two"]


def test_dead_letters(spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> None:
    source, target, bad = topic(broker), topic(broker), topic(broker)
    send(producer_of(broker), source, [b'{"id": 1}', b"none of it", b'{"id": 2}'])
    file = file_of(
        tmp_path,
        broker,
        source,
        target,
        source='value = { format = "json", schema = "id BIGINT" }\non_malformed = "dead-letter"\n'
        f'dead_letter_topic = "{bad}"',
        transform='sql = "SELECT key, to_json(value) AS value FROM source"',
    )
    run_once(spark, file)
    assert values_in(broker, target, 1) == [b'{"id":1}', b'{"id":2}']
    [letter] = rows_by_librdkafka(broker, bad)
    assert letter.value == b"none of it"
    assert ("sparkonce.offset", b"1") in letter.headers


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_module:transform", "the module no_such_module cannot be imported"),
        ("with_mistakes:no_such_function", "there is no function no_such_function in"),
        ("with_mistakes:number", "there is no function number in"),
        ("with_mistakes:nothing", "with_mistakes:nothing must give a DataFrame, not NoneType"),
    ],
)
def test_functions_that_are_not_there(
    target: str, message: str, spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    modules(tmp_path, "with_mistakes", PYTHON)
    file = file_of(tmp_path, broker, topic(broker), "out", transform=f'python = "{target}"')
    with pytest.raises(UsageError, match=message):
        run_once(spark, file)

"""Queries that change over from Spark's built-in source, and backfills that drop nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sparkonce.devbroker import DevBroker
from sparkonce.spark.source_builder import KafkaSource
from tests.broker.fetch_samples import BASE_MS, producer_of, send
from tests.conftest import TopicFactory

HOUR_MS = 3_600_000


def run(rows: DataFrame, checkpoint: Path, seen: list[int] | None = None) -> list[Any]:
    """Everything that there is, to nowhere; or with the offsets into a list, also those of a repeated micro-batch."""

    def note(batch: DataFrame, batch_id: int) -> None:
        assert seen is not None
        seen.extend(row.offset for row in batch.select("offset").collect())

    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = (writer.format("noop") if seen is None else writer.foreachBatch(note)).start()
    query.awaitTermination()
    return list(query.recentProgress)


def test_a_checkpoint_of_the_built_in_source(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(broker)
    send(producer_of(broker), name, [b"x"] * 10)
    source = KafkaSource(broker.bootstrap_servers, topics=name, start="earliest", max_offsets_per_trigger=4)
    first: list[int] = []
    run(source.stream(spark), tmp_path / "checkpoint", first)
    assert sorted(first) == list(range(10))
    # The same log as the built-in source would have written it, with the last micro-batch not yet committed.
    for logged in sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*")):
        *front, offsets = logged.read_text().splitlines()
        logged.write_text("\n".join([*front, json.dumps(json.loads(offsets)["end"])]))
        (logged.parent / f".{logged.name}.crc").unlink(missing_ok=True)
    for committed in (tmp_path / "checkpoint" / "commits").glob("*2*"):  # The entry and its checksum.
        committed.unlink()
    send(producer_of(broker), name, [b"y"] * 5)
    continued: list[int] = []
    run(source.stream(spark), tmp_path / "checkpoint", continued)
    # The unfinished micro-batch with exactly its records, and then on from there.
    assert continued == [8, 9, 10, 11, 12, 13, 14]


def test_a_backfill_with_one_partition_a_day_ahead(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(broker, partitions=2)
    # Ten hours, a record each: one topic partition begins where the other is a day later.
    for hour in range(10):
        send(producer_of(broker), name, [b"x"], 0, BASE_MS + hour * HOUR_MS)
        send(producer_of(broker), name, [b"x"], 1, BASE_MS + (24 + hour) * HOUR_MS)

    def dropped(checkpoint: str, **options: Any) -> int:
        source = KafkaSource(
            broker.bootstrap_servers, topics=name, start="earliest", max_offsets_per_trigger=8, **options
        )
        hours = source.stream(spark).withWatermark("timestamp", "2 hours").groupBy(f.window("timestamp", "1 hour"))
        progress = run(hours.count(), tmp_path / checkpoint)
        return sum(each["numRowsDroppedByWatermark"] for told in progress for each in told["stateOperators"])

    assert dropped("free") > 0
    assert dropped("aligned", max_event_time_drift="2h") == 0

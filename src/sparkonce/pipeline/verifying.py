"""A pipeline's output against what its input should have become, recomputed by its own transform."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sparkonce.errors import UsageError
from sparkonce.fetch import Progress
from sparkonce.fetch.checkpoint import read_checkpoint
from sparkonce.fetch.offset_maps import nested
from sparkonce.pipeline.arguments import kafka_sink_options
from sparkonce.pipeline.build import kafka_source, rows_function, select_function
from sparkonce.pipeline.model import Pipeline, Place, Sink, Source, located
from sparkonce.pipeline.secret import revealed
from sparkonce.pipeline.spark_errors import refused_by_spark
from sparkonce.spark import KafkaSource
from sparkonce.spark.outputs import selected
from sparkonce.spark.verify import Verdict, verify

_ONLY_WHILE_RUNNING = ("max_bytes_per_trigger", "min_offsets_per_trigger", "max_trigger_delay")
_ROWS_A_PARTITION = 250_000
_EARLIEST = -2
"""For a query that changed over from Spark's built-in source, whose checkpoint does not say where it began."""


def verify_pipeline(
    spark: SparkSession, pipeline: Pipeline, *, id_expression: str | None = None, header: str | None = None
) -> Verdict:
    """Compares what was committed so far."""
    sink = pipeline.kafka_sink
    if sink is None:
        raise UsageError("verify compares with Kafka, and the pipeline has no Kafka sink")
    progress = committed_progress(pipeline)
    spark.conf.set("spark.sql.shuffle.partitions", _shuffle_partitions(spark, progress))
    with refused_by_spark():
        expected = expected_rows(spark, pipeline, sink, progress)
        topics = [row["topic"] for row in expected.select("topic").distinct().collect()]
        found = found_rows(spark, pipeline, sink, topics)
        return verify(expected, found, header_expression(header) if header else id_expression)


def _shuffle_partitions(spark: SparkSession, progress: Progress) -> int:
    """So many that each holds little: Spark does not adapt what it keeps."""
    offsets = sum(end - max(0, progress.start.get(partition, 0)) for partition, end in progress.end.items())
    return max(spark.sparkContext.defaultParallelism, offsets // _ROWS_A_PARTITION)


def committed_progress(pipeline: Pipeline) -> Progress:
    """How far the pipeline has read, by its checkpoint."""
    address = located(revealed(pipeline.checkpoint), pipeline.folder)
    committed = read_checkpoint(address).committed
    progress = committed.progress() if committed else None
    if progress is None:
        raise UsageError(f"the checkpoint {address} has no committed micro-batch: there is nothing to verify yet")
    return progress


def expected_rows(spark: SparkSession, pipeline: Pipeline, sink: Sink, progress: Progress) -> DataFrame:
    """The rows that were to be written, with their topics."""
    source = kafka_source(read_so_far(pipeline.source, progress))
    transform = rows_function(pipeline.transform, pipeline.folder)
    has_letters = pipeline.source.dead_letter_topic is not None
    rows = source.read(spark, transform=transform) if has_letters else transform(source.read(spark))
    rows = selected(rows, select_function(sink.select, pipeline.folder))
    default = f.lit(revealed(sink.options.get("topic")))
    return rows.withColumn("topic", f.coalesce(f.col("topic"), default) if "topic" in rows.columns else default)


def read_so_far(source: Source, progress: Progress) -> Source:
    """The same source, bounded by what was read of it."""
    partitions: dict[str, tuple[int, ...]] = {}
    for partition in sorted(progress.end):
        partitions[partition.topic] = (*partitions.get(partition.topic, ()), partition.partition)
    begin = {partition: progress.start.get(partition, _EARLIEST) for partition in progress.end}
    return replace(
        source,
        topics=(),
        topic_pattern=None,
        partitions=partitions,
        start=Place(offsets=nested(begin)),
        stop=Place(offsets=nested(progress.end)),
        options={name: value for name, value in source.options.items() if name not in _ONLY_WHILE_RUNNING},
    )


def found_rows(spark: SparkSession, pipeline: Pipeline, sink: Sink, topics: list[str]) -> DataFrame:
    """What a reader sees in the output."""
    options = kafka_sink_options(sink, pipeline.source)
    properties: dict[str, Any] = {name: value for name, value in options.items() if name.startswith("kafka.")}
    source = KafkaSource(
        options["bootstrap_servers"],
        topics=topics or [revealed(sink.options["topic"])],
        start="earliest",
        include_headers=True,
        **properties,
    )
    return source.read(spark)


def header_expression(name: str) -> str:
    """The value of a header, as an id."""
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST(filter(headers, h -> h.key = '{quoted}')[0].value AS STRING)"

"""From a pipeline that was found right to Spark's objects: its source, its sink, its query.

Imports Spark's layer, and with it pyspark and the compiled kernels; what describes and reads a file does without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.errors import UsageError
from sparkonce.pipeline.arguments import kafka_sink_options, source_options, spark_settings
from sparkonce.pipeline.model import Pipeline, Select, Sink, Source, Transform, located
from sparkonce.pipeline.secret import revealed
from sparkonce.pipeline.spark_errors import told_once
from sparkonce.pipeline.trigger import AVAILABLE_NOW
from sparkonce.spark import AtomicSinks, FileSink, KafkaSink, KafkaSource, MariaDBSink, PostgresSink, StoreSink
from sparkonce.spark.micro_batches import MicroBatchSink
from sparkonce.spark.session import local_session
from sparkonce.spark.sink_options import sink_options
from sparkonce.spark.source_options import BOOTSTRAP, OPTIONS

SOURCE_OPTIONS = OPTIONS
SOURCE_VIEW = "source"
"""What the SQL of a transform reads."""
ROWS_VIEW = "rows"
"""What the SQL of a sink's select reads."""

Rows = Callable[[DataFrame], DataFrame]


# Checks, for a file that may be wrong.


def refuse_source(source: Source) -> None:
    """UsageError for what the source does not take."""
    kafka_source(source)


def refuse_kafka_sink(given: Mapping[str, Any]) -> None:
    """UsageError for what the Kafka sink does not take."""
    rest = {name: value for name, value in given.items() if name not in ("bootstrap_servers", "partitioner")}
    choice = given.get("partitioner")
    # A function is looked for when the pipeline starts.
    sink_options(given["bootstrap_servers"], rest | ({"partitioner": choice} if isinstance(choice, str) else {}))


def refuse_store(sink: Sink) -> None:
    """UsageError for what a sink in a database or in files does not take; its driver need not be installed."""
    with suppress(ImportError):
        built = _store(sink, Path(), None)
        try:
            # Made of the address, which is read for it.
            str(built.participant.name)
        except UsageError:
            raise
        except Exception:
            # An error of the driver's own, whose text may show a password.
            raise UsageError("dsn cannot be read; write it as host=localhost dbname=shop user=…") from None


# Spark's objects.


def session(pipeline: Pipeline) -> SparkSession:
    """The session that [run] asks for."""
    told_once()
    return local_session(revealed(pipeline.name), revealed(pipeline.run.master), spark_settings(pipeline))


def kafka_source(source: Source, max_offsets_per_trigger: int | None = None) -> KafkaSource:
    """The source, not yet in any session."""
    options: dict[str, Any] = source_options(source)
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    return KafkaSource(
        options.pop(BOOTSTRAP),
        on_malformed=source.on_malformed or "fail",
        dead_letter_topic=revealed(source.dead_letter_topic),
        **options,
    )


def source_frame(spark: SparkSession, pipeline: Pipeline, max_offsets_per_trigger: int | None = None) -> DataFrame:
    """What the sinks are given: the stream, transformed, with malformed records beside it if they go to a topic."""
    limit = max_offsets_per_trigger or pipeline.run.max_offsets_per_trigger
    source = kafka_source(pipeline.source, limit)
    transform = rows_function(pipeline.transform, pipeline.folder)
    if pipeline.source.dead_letter_topic is not None:
        return source.stream(spark, transform=transform)
    return transform(source.stream(spark))


def sink_of(pipeline: Pipeline) -> MicroBatchSink:
    """The sink, or several as one."""
    built = [_sink(sink, pipeline) for sink in pipeline.sinks]
    return built[0] if len(built) == 1 else AtomicSinks(*built)


def start(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    once: bool = False,
    trigger: str | None = None,
    max_offsets_per_trigger: int | None = None,
) -> tuple[StreamingQuery, MicroBatchSink]:
    """Starts the query; `once` reads all that is there now, and ends. The others go before what the file says."""
    sink = sink_of(pipeline)
    rows = source_frame(spark, pipeline, max_offsets_per_trigger)
    chosen = AVAILABLE_NOW if once else trigger or revealed(pipeline.run.trigger)
    checkpoint = located(revealed(pipeline.checkpoint), pipeline.folder)
    return sink.start(rows, checkpoint, chosen, name=revealed(pipeline.name)), sink


def _sink(sink: Sink, pipeline: Pipeline) -> KafkaSink | StoreSink:
    select = select_function(sink.select, pipeline.folder)
    if sink.type != "kafka":
        return _store(sink, pipeline.folder, select)
    given = kafka_sink_options(sink, pipeline.source)
    if isinstance(given.get("partitioner"), dict):
        given["partitioner"] = function_of(given["partitioner"]["python"], pipeline.folder)
    return KafkaSink(given.pop("bootstrap_servers"), select=select, **given)


def _store(sink: Sink, folder: Path, select: Any) -> StoreSink:
    given = dict(revealed(dict(sink.options)))
    if sink.type == "postgres":
        return PostgresSink(given.pop("dsn"), select=select, **given)
    if sink.type == "mariadb":
        return MariaDBSink(given.pop("url"), select=select, **given)
    return FileSink(located(given.pop("path"), folder), select=select, **given)


def select_function(select: Select | None, folder: Path) -> Any:
    """What of the rows a sink gets, as sinks take it."""
    if select is None:
        return None
    if select.expressions:
        return list(revealed(select.expressions))
    if select.python is not None:
        return function_of(revealed(select.python), folder)
    return sql_over(revealed(select.sql), ROWS_VIEW)


def rows_function(transform: Transform | None, folder: Path) -> Rows:
    """The transform as a function."""
    if transform is None:
        return lambda rows: rows
    if transform.sql is not None:
        return sql_over(revealed(transform.sql), SOURCE_VIEW)
    if transform.python is not None:
        return _giving_a_frame(revealed(transform.python), folder)
    function, schema = function_of(revealed(transform.arrow), folder), revealed(transform.schema)
    return lambda rows: rows.mapInArrow(function, schema)


def sql_over(query: str, view: str) -> Rows:
    """Runs a query over the rows as a view, which is there only while Spark reads the query."""

    def transform(rows: DataFrame) -> DataFrame:
        spark = rows.sparkSession
        rows.createOrReplaceTempView(view)
        try:
            return spark.sql(query)
        finally:
            spark.catalog.dropTempView(view)

    return transform


def _giving_a_frame(target: str, folder: Path) -> Rows:
    function = function_of(target, folder)

    def transform(rows: DataFrame) -> DataFrame:
        given = function(rows)
        if not isinstance(given, DataFrame):
            raise UsageError(f"{target} must give a DataFrame, not {type(given).__name__}")
        return given

    return transform


def function_of(target: str, folder: Path) -> Callable[..., Any]:
    """The function of "module:function"; modules beside the pipeline file are found first."""
    module_name, _, name = target.partition(":")
    place = str(folder.absolute())
    if sys.path[0] != place:
        sys.path.insert(0, place)
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise UsageError(f"{target}: the module {module_name} cannot be imported: {error}") from error
    _send_by_value(folder)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{target}: there is no function {name} in {module.__file__}")
    found: Callable[..., Any] = function
    return found


def _send_by_value(folder: Path) -> None:
    """Executors do not see the folder of the file: what was imported from there travels with the functions."""
    for name, module in list(sys.modules.items()):
        place = folder.absolute().joinpath(*name.split("."))
        if getattr(module, "__file__", None) in (f"{place}.py", str(place / "__init__.py")):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

"""`sparkonce recover`: a person decides whether a micro-batch is committed, because Kafka has forgotten it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import click

from sparkonce.cli.reports import confirm, echo_json, file_argument, json_option, yes_option
from sparkonce.cli.run import with_logs_on_stderr
from sparkonce.errors import UsageError
from sparkonce.fetch.checkpoint import Checkpoint, read_checkpoint
from sparkonce.pipeline import Pipeline, load
from sparkonce.pipeline.build import session
from sparkonce.pipeline.model import located
from sparkonce.pipeline.running import Running, Status
from sparkonce.pipeline.secret import revealed

_WHAT = {
    "committed": "is taken as committed: it is computed, so that the query's state goes on, and nothing is sent",
    "not-committed": "is taken as not committed: it is sent again, in one transaction",
}


@click.command()
@file_argument
@click.option("--assume", type=click.Choice(list(_WHAT)), required=True, help="What you found in the output.")
@yes_option
@json_option
def recover(file: Path, assume: str, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Settle a micro-batch that ended in MissingMarkerError.

    Look at the output first: is the micro-batch there? Then say so here, once. If the marker is in Kafka after all, it
    decides, and what you said is not needed.

    \b
    Example:
      sparkonce recover orders.toml --assume not-committed
    """
    pipeline = load(file)
    address = located(revealed(pipeline.checkpoint), pipeline.folder)
    checkpoint = read_checkpoint(address)
    batch_id = batch_in_doubt(checkpoint)
    if not as_json:
        click.echo(f"batch {batch_id} of {revealed(pipeline.name)} {_WHAT[assume]}")
    confirm("Shall it be done?", yes=yes, as_json=as_json)
    settle(assuming(pipeline, assume))
    if as_json:
        echo_json({"query_id": checkpoint.query_id, "batch_id": batch_id, "assumed": assume})
        return
    click.echo("settled: start the pipeline as usual")


def batch_in_doubt(checkpoint: Checkpoint) -> int:
    """Which one; UsageError if nothing can be in doubt."""
    if checkpoint.unfinished is None:
        raise UsageError(
            f"the checkpoint {checkpoint.folder} has no micro-batch that is not finished: nothing is in doubt. Start "
            f"the pipeline as usual"
        )
    return checkpoint.unfinished.batch_id


def assuming(pipeline: Pipeline, assume: str) -> Pipeline:
    """The pipeline with the option for it."""
    if pipeline.kafka_sink is None:
        raise UsageError("only a Kafka sink's marker can be missing, and the pipeline has no Kafka sink")
    sinks = tuple(
        replace(sink, options={**sink.options, "on_missing_marker": assume}) if sink.type == "kafka" else sink
        for sink in pipeline.sinks
    )
    return replace(pipeline, sinks=sinks)


def settle(pipeline: Pipeline) -> None:
    """Runs until one micro-batch is finished."""
    with_logs_on_stderr()
    spark = session(pipeline)
    stop = threading.Event()

    def stop_after_one(status: Status) -> None:
        if status.committed or status.found_committed:
            stop.set()

    try:
        Running(spark, pipeline, once=True).wait(stop_after_one, stop, threading.Event())
    finally:
        spark.stop()

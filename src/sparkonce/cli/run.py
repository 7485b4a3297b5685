"""`sparkonce run`: a pipeline file, run until it ends or is asked to end."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType

import click

from sparkonce.pipeline import Pipeline, load
from sparkonce.pipeline.build import session
from sparkonce.pipeline.running import Running, Status
from sparkonce.pipeline.secret import revealed

_CLEAR_LINE = "\r\033[K"


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--once", is_flag=True, help="Read all that is there now, then stop.")
@click.option("--trigger", help="How often, instead of what the file says: '10 seconds', 'available-now'.")
@click.option("--master", help="Where Spark runs, instead of what the file says.")
@click.option("--max-offsets-per-trigger", type=click.IntRange(1), help="How much a micro-batch reads at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per micro-batch, and one at the end.")
def run(
    file: Path,
    once: bool,  # noqa: FBT001
    trigger: str | None,
    master: str | None,
    max_offsets_per_trigger: int | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Run a pipeline file.

    Ctrl-C, or SIGTERM, lets the micro-batch that is running finish, and stops; a second one stops at once. Either way
    nothing is lost or doubled: start it again with the same command.

    \b
    Example:
      sparkonce run orders.toml --once
    """
    pipeline = load(file)
    if master is not None:
        pipeline = replace(pipeline, run=replace(pipeline.run, master=master))
    show = _shown_as_json() if as_json else _shown_as_text(pipeline)
    with_logs_on_stderr()
    spark = session(pipeline)
    stop, stop_now = _events_of_signals()
    begun = time.monotonic()
    try:
        running = Running(spark, pipeline, once=once, trigger=trigger, max_offsets_per_trigger=max_offsets_per_trigger)
        last = running.wait(show, stop, stop_now)
    finally:
        if sys.stderr.isatty() and not as_json:
            click.echo(_CLEAR_LINE, nl=False, err=True)
        spark.stop()
    _tell_the_end(last, time.monotonic() - begun, as_json=as_json)


def with_logs_on_stderr() -> None:
    """Warnings of ours, one line each. Py4J would show a traceback for an error that is told otherwise."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s: %(message)s", level=logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _events_of_signals() -> tuple[threading.Event, threading.Event]:
    """Set by the first and by the second signal. After Spark has started: it has a handler of its own for Ctrl-C."""
    stop, stop_now = threading.Event(), threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            stop_now.set()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    return stop, stop_now


def status_line(status: Status) -> str:
    """How a pipeline stands, on one line."""
    if status.batch_id is None:
        return "starting" if not status.is_busy else "first micro-batch"
    parts = [
        f"batch {status.batch_id}",
        f"{status.rows:,} rows",
        f"{status.rows_per_second:,.0f} rows/s",
        f"lag {status.pending:,}" if status.pending is not None else "lag unknown",
        f"{status.committed} committed",
        f"{status.aborted} aborted",
    ]
    if status.open_seconds:
        parts.append(f"transaction open {status.open_seconds:.1f} s")
    return " · ".join(parts)


def _shown_as_text(pipeline: Pipeline) -> Callable[[Status], None]:
    """A line that changes on a terminal; elsewhere a line a micro-batch."""
    click.echo(f"{revealed(pipeline.name)}: starting Spark ({revealed(pipeline.run.master)})", err=True)
    if sys.stderr.isatty():
        return lambda status: click.echo(f"{_CLEAR_LINE}{status_line(status)}", nl=False, err=True)
    return _on_every_batch(lambda status: click.echo(status_line(status), err=True))


def _shown_as_json() -> Callable[[Status], None]:
    return _on_every_batch(lambda status: click.echo(json.dumps(asdict(status))))


def _on_every_batch(tell: Callable[[Status], None]) -> Callable[[Status], None]:
    seen: set[int | None] = {None}

    def show(status: Status) -> None:
        if status.batch_id not in seen:
            seen.add(status.batch_id)
            tell(status)

    return show


def _tell_the_end(last: Status, seconds: float, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**asdict(last), "ended": True, "seconds": round(seconds, 1)}))
        return
    batches = "micro-batch" if last.committed == 1 else "micro-batches"
    click.echo(
        f"ended after {seconds:.0f} s: {last.rows:,} rows read, {last.committed} {batches} committed, "
        f"{last.aborted} aborted and run again"
    )

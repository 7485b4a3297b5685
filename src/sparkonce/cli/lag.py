"""`sparkonce lag`: is a query keeping up?"""

from __future__ import annotations

from pathlib import Path

import click

from sparkonce.cli.query_file import load_query
from sparkonce.cli.reports import echo_json, file_argument, json_option
from sparkonce.ops.lag import Lag, PartitionLag, query_lag
from sparkonce.ops.query import Record
from sparkonce.ops.tables import duration, table


@click.command()
@file_argument
@json_option
def lag(file: Path, as_json: bool) -> None:  # noqa: FBT001
    """Show how far the query of the pipeline FILE is behind, for each topic partition.

    Counted in offsets from the newest micro-batch that Spark has committed. BEHIND is the age of the next record.

    \b
    Example:
      sparkonce lag orders.toml
      sparkonce lag orders.toml --json
    """
    found = query_lag(load_query(file))
    if as_json:
        echo_json(lag_record(found))
    else:
        click.echo(lag_text(found))


def lag_text(found: Lag) -> str:
    """For people."""
    groups = sorted({group for one in found.partitions for group in one.groups})
    header = ["PARTITION", "CURRENT", *(f"GROUP {group}" for group in groups), "END", "LAG", "BEHIND"]
    rows = [
        [
            one.topic_partition,
            _number(one.current),
            *(_number(one.groups.get(group)) for group in groups),
            _number(one.end),
            _number(one.lag),
            _behind(one),
        ]
        for one in found.partitions
    ]
    lines = [table(header, rows, right=header[1:]), "", f"CURRENT is from {found.basis}."]
    if found.unfinished is not None:
        lines.append(f"Batch {found.unfinished} is planned and not committed: running now, or run at the next start.")
    lost = sum(one.lost for one in found.partitions)
    if lost:
        lines.append(f"{lost:,} offsets were deleted by retention before they were read.")
    total = "unknown" if found.total is None else f"{found.total:,} offsets"
    late = "" if found.behind_ms is None else f", the oldest record is {duration(found.behind_ms)} old"
    return "\n".join([*lines, f"In all: {total}{late}."])


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _behind(one: PartitionLag) -> str:
    if one.behind_ms is not None:
        return duration(one.behind_ms)
    return "0" if one.lag == 0 else "-"


def lag_record(found: Lag) -> Record:
    """For programs."""
    return {
        "total": found.total,
        "behind_ms": found.behind_ms,
        "basis": found.basis,
        "batch_id": found.batch_id,
        "unfinished_batch_id": found.unfinished,
        "partitions": [
            {
                "topic": one.topic_partition.topic,
                "partition": one.topic_partition.partition,
                "current": one.current,
                "earliest": one.earliest,
                "end": one.end,
                "lag": one.lag,
                "lost": one.lost,
                "behind_ms": one.behind_ms,
                "groups": dict(one.groups),
            }
            for one in found.partitions
        ],
    }

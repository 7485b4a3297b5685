"""`sparkonce offsets`: where a query begins next, and moving it."""

from __future__ import annotations

from pathlib import Path

import click

from sparkonce.cli.query_file import load_query
from sparkonce.cli.reports import confirm, echo_json, file_argument, json_option, yes_option
from sparkonce.ops.offset_changes import parse_wish
from sparkonce.ops.offsets import Plan, Positions, carry_out, plan, positions, require_stopped
from sparkonce.ops.query import Query, Record
from sparkonce.ops.tables import table, wrapped


@click.command()
@file_argument
@click.option(
    "--set",
    "wishes",
    multiple=True,
    metavar="TOPIC:PARTITION=OFFSET",
    help="Begin there; also earliest or latest; TOPIC=… for all its partitions. Repeatable.",
)
@click.option(
    "--in",
    "place",
    type=click.Choice(["checkpoint", "group"]),
    help="Where to set. Default: where the next start looks.",
)
@click.option("--owner-gone", is_flag=True, help="The process that ran the query last is another program by now.")
@yes_option
@json_option
def offsets(
    file: Path,
    wishes: tuple[str, ...],
    place: str | None,
    owner_gone: bool,  # noqa: FBT001
    yes: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> None:
    """Show where the next start of the pipeline FILE begins, or move it with --set.

    Moving back reads records again and writes what they give a second time; moving forward skips them. The query must
    be stopped. What will be done is shown first.

    \b
    Example:
      sparkonce offsets orders.toml
      sparkonce offsets orders.toml --set orders:0=1500 --set orders:1=latest
    """
    query = load_query(file)
    if wishes:
        move(query, wishes, place, owner_gone=owner_gone, yes=yes, as_json=as_json)
        return
    found = positions(query)
    _tell(positions_record(found), positions_text(found), as_json=as_json)


def move(
    query: Query, wishes: tuple[str, ...], place: str | None, *, owner_gone: bool, yes: bool, as_json: bool
) -> None:
    """Plans, shows, asks and acts."""
    wanted = [parse_wish(text) for text in wishes]
    made = plan(query, wanted, place)
    if not made.moves:
        _tell(
            plan_record(made, "nothing was changed"),
            "The offsets are as you want them; nothing was changed.",
            as_json=as_json,
        )
        return
    require_stopped(query, owner_gone=owner_gone)
    if not as_json:
        click.echo(plan_text(made))
    confirm("Do this?", yes=yes, as_json=as_json)
    done = carry_out(query, made)
    _tell(plan_record(made, done), done, as_json=as_json)


def _tell(record: Record, text: str, *, as_json: bool) -> None:
    if as_json:
        echo_json(record)
    else:
        click.echo(text)


def plan_text(made: Plan) -> str:
    """What will be done, for people."""
    steps = [f"  {number}. {wrapped(step, 5)}" for number, step in enumerate(made.steps, 1)]
    return "\n".join(["This will:", *steps, "", *(f"  {wrapped(str(move), 4)}" for move in made.moves), ""])


def plan_record(made: Plan, done: str) -> Record:
    """What was done, for programs."""
    return {
        "place": made.place,
        "steps": list(made.steps),
        "moves": [
            {
                "topic": move.topic_partition.topic,
                "partition": move.topic_partition.partition,
                "from": move.old,
                "to": move.new,
            }
            for move in made.moves
        ],
        "outcome": done,
    }


def positions_text(found: Positions) -> str:
    """For people."""
    groups = sorted({group for one in found.partitions for group in one.groups})
    header = ["PARTITION", "NEXT START", *(f"GROUP {group}" for group in groups), "EARLIEST", "LATEST"]
    rows = [
        [
            one.topic_partition,
            "-" if one.next_start is None else f"{one.next_start:,}",
            *(f"{one.groups[group]:,}" if group in one.groups else "-" for group in groups),
            f"{one.earliest:,}",
            f"{one.latest:,}",
        ]
        for one in found.partitions
    ]
    return "\n".join([table(header, rows, right=header[1:]), "", wrapped(found.begins, 0)])


def positions_record(found: Positions) -> Record:
    """For programs."""
    return {
        "begins": found.begins,
        "partitions": [
            {
                "topic": one.topic_partition.topic,
                "partition": one.topic_partition.partition,
                "next_start": one.next_start,
                "groups": dict(one.groups),
                "earliest": one.earliest,
                "latest": one.latest,
            }
            for one in found.partitions
        ],
    }

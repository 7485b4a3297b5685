"""`sparkonce transactions`: what is open, who owns it, what hangs; and ending it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from sparkonce.cli.reports import confirm, connection_of, connection_options, echo_json, json_option, yes_option
from sparkonce.ops.aborting import Aborted, abort, require_abortable
from sparkonce.ops.query import Record
from sparkonce.ops.tables import count, duration, listed, table, wrapped
from sparkonce.ops.transactions import Hanging, KnownTransaction, Overview, describe, now_ms, overview
from sparkonce.wire import Client


@click.group()
def transactions() -> None:
    """Transactions of a cluster: what is open, who owns it, what hangs.

    \b
    Example:
      sparkonce transactions list --bootstrap-server localhost:9092
      sparkonce transactions describe big-orders --pipeline orders.toml
      sparkonce transactions abort big-orders --pipeline orders.toml
    """


@transactions.command("list")
@click.argument("pattern", required=False)
@click.option("--open", "only_open", is_flag=True, help="Only those with a transaction that is open now.")
@click.option("--no-scan", is_flag=True, help="Do not look for hanging transactions in all topic partitions.")
@connection_options
@json_option
@click.pass_context
def list_(
    context: click.Context,
    /,
    pattern: str | None,
    only_open: bool,  # noqa: FBT001
    no_scan: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
    **where: Any,
) -> None:
    """List transactional ids: all, or those that begin with PATTERN or match it (* and ?).

    Exit code 1 if a transaction hangs.

    \b
    Example:
      sparkonce transactions list --bootstrap-server localhost:9092
      sparkonce transactions list 'orders-*' --open --bootstrap-server localhost:9092
    """
    with Client(connection_of(**where)) as client:
        found = overview(client, pattern, scan=not no_scan)
    shown = [one for one in found.transactions if one.is_open or not only_open]
    if as_json:
        echo_json(overview_record(found, shown))
    else:
        click.echo(overview_text(found, shown))
    context.exit(1 if found.has_problems else 0)


@transactions.command("describe")
@click.argument("transactional_id")
@connection_options
@json_option
def describe_(transactional_id: str, as_json: bool, **where: Any) -> None:  # noqa: FBT001
    """Show everything about one transactional id.

    \b
    Example:
      sparkonce transactions describe big-orders --bootstrap-server localhost:9092
    """
    with Client(connection_of(**where)) as client:
        found = describe(client, transactional_id)
    if as_json:
        echo_json(transaction_record(found, now_ms()))
    else:
        click.echo(description_text(found, now_ms()))


@transactions.command("abort")
@click.argument("transactional_id")
@connection_options
@yes_option
@json_option
@click.pass_context
def abort_(
    context: click.Context,
    /,
    transactional_id: str,
    yes: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
    **where: Any,
) -> None:
    """Abort the open transaction of one transactional id, by taking the id over.

    Whoever holds the id is fenced: a query that runs with it stops with FencedError, and goes on where it was when it
    is started again. Nothing of the aborted transaction will be visible to read_committed readers.

    \b
    Example:
      sparkonce transactions abort big-orders --bootstrap-server localhost:9092
    """
    with Client(connection_of(**where)) as client:
        known = describe(client, transactional_id)
        require_abortable(known)
        if not as_json:
            click.echo(description_text(known, now_ms()))
            click.echo(f"\n{wrapped(warning_text(known), 0)}\n")
        confirm("Abort it?", yes=yes, as_json=as_json)
        done = abort(client, known)
    if as_json:
        echo_json(aborted_record(done))
    else:
        click.echo(aborted_text(done))
    context.exit(1 if done.still_open else 0)


# For people.


def overview_text(found: Overview, shown: list[KnownTransaction]) -> str:
    """A table, then what hangs."""
    header = ["TRANSACTIONAL ID", "STATE", "PRODUCER", "OPEN FOR", "PARTITIONS", "BATCH", "OWNER"]
    rows = [_row(one, found.now_ms) for one in shown]
    lines = [table(header, rows, right=("PARTITIONS", "BATCH"))] if rows else ["No transactional ids."]
    overdue = [one for one in found.transactions if one.overdue_ms(found.now_ms)]
    lines += [f"\n{wrapped(_overdue_text(one, found.now_ms), 2)}" for one in overdue]
    lines += [f"\n{hanging_text(one)}" for one in found.hanging]
    if found.unseen_topics:
        lines.append(f"\nNot looked at, for lack of READ: {listed(found.unseen_topics)}.")
    return "\n".join(lines)


def _row(one: KnownTransaction, now: int) -> list[object]:
    description, claim = one.description, one.claim
    open_ms = one.open_ms(now)
    age = "-" if open_ms is None else f"{duration(open_ms)} of {duration(description.timeout_ms)}"
    return [
        one.transactional_id,
        description.state,
        f"{description.producer_id}/{description.producer_epoch}",
        age,
        len(description.partitions),
        "-" if claim.marker is None else claim.marker.batch_id,
        _short_owner(one),
    ]


def _short_owner(one: KnownTransaction) -> str:
    owner = one.claim.owner or (one.claim.marker.owner if one.claim.marker is not None else None)
    return "not sparkonce" if owner is None else f"{owner.process_id}@{owner.host}"


def _overdue_text(one: KnownTransaction, now: int) -> str:
    over = duration(one.overdue_ms(now))
    if one.hangs(now):
        return (
            f"{one.transactional_id} HANGS: it is open for {over} longer than its timeout, and the broker has not "
            f"aborted it. End it: sparkonce transactions abort {one.transactional_id}"
        )
    return f"{one.transactional_id} is open for {over} longer than its timeout; the broker aborts it within seconds."


def hanging_text(one: Hanging) -> str:
    """A transaction that only a topic partition knows."""
    what = (
        f"of {one.transactional_id}"
        if one.transactional_id
        else f"of producer {one.range.producer_id}, which has no id"
    )
    text = (
        f"{one.range.topic_partition} HANGS at offset {one.range.start_offset:,}: a transaction {what} is open there, "
        f"and no coordinator knows of it. Readers with read_committed stand still. An administrator ends it:"
    )
    return f"{wrapped(text, 2)}\n    {one.remedy}"


def description_text(one: KnownTransaction, now: int) -> str:
    """Everything about one id."""
    description, claim = one.description, one.claim
    lines = [
        f"{one.transactional_id}",
        f"  state       {description.state}",
        f"  producer    id {description.producer_id}, epoch {description.producer_epoch}",
        f"  timeout     {duration(description.timeout_ms)}",
    ]
    open_ms = one.open_ms(now)
    if open_ms is not None:
        since = datetime.fromtimestamp(description.started_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        over = f", {duration(one.overdue_ms(now))} longer than allowed" if one.overdue_ms(now) else ""
        lines.append(f"  open        for {duration(open_ms)}, since {since}{over}")
    if claim.owner is not None:
        lines.append(f"  owner       {claim.owner}")
    if claim.marker is not None:
        marker = claim.marker
        lines.append(f"  committed   batch {marker.batch_id} of query {marker.owner.query_id}")
    if claim.problem is not None:
        lines.append(f"  marker      {wrapped(claim.problem, 14)}")
    if not claim.is_ours and claim.problem is None:
        lines.append("  owner       not sparkonce")
    partitions = sorted(description.partitions)
    lines.append(f"  partitions  {len(partitions) or 'none'}")
    return "\n".join([*lines, *(f"    {tp}" for tp in partitions)])


def warning_text(one: KnownTransaction) -> str:
    """What abort will do."""
    who = f"The query of {one.claim.owner}" if one.claim.owner is not None else "Whoever produces with this id"
    partitions = count(len(one.description.partitions), "partition")
    return (
        f"The id will be taken over and its open transaction aborted in {partitions}. {who} is fenced: if it still "
        f"runs, it stops with FencedError. Start it again to go on; nothing is lost, since the micro-batch that was "
        f"open runs again."
    )


def aborted_text(done: Aborted) -> str:
    """What happened."""
    name, now = done.before.transactional_id, done.identity
    if done.still_open:
        places = listed([f"{one.topic_partition} at offset {one.start_offset}" for one in done.still_open])
        return f"{name} was taken over, but something of it is still open: {places}. Look again in some seconds."
    batch = done.after.claim.marker.batch_id if done.after.claim.marker is not None else None
    committed = "" if batch is None else f" The last committed batch is {batch}, as before."
    if done.before.claim.marker != done.after.claim.marker:
        committed = f" Batch {batch} was committed in the moment before."
    return (
        f"The transaction of {name} is aborted; read_committed readers see nothing of it. The id is at producer "
        f"{now.producer_id}, epoch {now.producer_epoch}.{committed}"
    )


# For programs.


def overview_record(found: Overview, shown: list[KnownTransaction]) -> Record:
    """A whole cluster."""
    return {
        "transactions": [transaction_record(one, found.now_ms) for one in shown],
        "hanging": [
            {
                "topic": one.range.topic_partition.topic,
                "partition": one.range.topic_partition.partition,
                "start_offset": one.range.start_offset,
                "producer_id": one.range.producer_id,
                "producer_epoch": one.range.producer_epoch,
                "transactional_id": one.transactional_id,
                "remedy": one.remedy,
            }
            for one in found.hanging
        ],
        "unseen_topics": list(found.unseen_topics),
    }


def transaction_record(one: KnownTransaction, now: int) -> Record:
    """One id."""
    description, claim = one.description, one.claim
    owner, marker = claim.owner, claim.marker
    return {
        "transactional_id": one.transactional_id,
        "state": description.state,
        "open": one.is_open,
        "open_ms": one.open_ms(now),
        "overdue_ms": one.overdue_ms(now),
        "hangs": one.hangs(now),
        "producer_id": description.producer_id,
        "producer_epoch": description.producer_epoch,
        "timeout_ms": description.timeout_ms,
        "partitions": [[tp.topic, tp.partition] for tp in sorted(description.partitions)],
        "sparkonce": claim.is_ours,
        "owner": None
        if owner is None
        else {"host": owner.host, "process_id": owner.process_id, "query_id": owner.query_id},
        "committed_batch_id": None if marker is None else marker.batch_id,
        "committed_query_id": None if marker is None else marker.owner.query_id,
    }


def aborted_record(done: Aborted) -> Record:
    """What abort did."""
    return {
        "aborted": not done.still_open,
        "before": transaction_record(done.before, now_ms()),
        "after": transaction_record(done.after, now_ms()),
        "still_open": [str(one.topic_partition) for one in done.still_open],
    }

"""`sparkonce migrate`: a pipeline goes on where a job of Spark's built-in connector stopped."""

from __future__ import annotations

from pathlib import Path

import click

from sparkonce.cli.reports import confirm, echo_json, file_argument, json_option, yes_option
from sparkonce.fetch.offset_maps import nested
from sparkonce.pipeline import load
from sparkonce.pipeline.migration import Migration, plan_migration
from sparkonce.pipeline.migration import migrate as copy_checkpoint
from sparkonce.pipeline.model import located
from sparkonce.pipeline.secret import revealed


@click.command()
@file_argument
@click.option("--from-checkpoint", required=True, metavar="DIR", help="The checkpoint of the job; it is not changed.")
@yes_option
@json_option
def migrate(file: Path, from_checkpoint: str, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Continue a job of Spark's built-in Kafka connector.

    Stop the job first. Its checkpoint is copied to where the pipeline file says, and the pipeline reads on from there:
    nothing is skipped, and nothing is read twice.

    \b
    Example:
      sparkonce migrate orders.toml --from-checkpoint /data/checkpoints/old-orders
    """
    pipeline = load(file)
    plan = plan_migration(from_checkpoint, located(revealed(pipeline.checkpoint), pipeline.folder))
    if not as_json:
        click.echo(described(plan))
    confirm("Has the job ended, and shall its checkpoint be copied?", yes=yes, as_json=as_json)
    copy_checkpoint(plan)
    if as_json:
        echo_json(
            {
                "source": str(plan.source),
                "target": str(plan.target),
                "query_id": plan.query_id,
                "next_batch": plan.next_batch,
                "repeats": plan.repeats,
                "offsets": nested(plan.offsets),
            }
        )
        return
    click.echo(f"done: start it with `sparkonce run {file}`, and do not start the old job again")


def described(plan: Migration) -> str:
    """What will be done."""
    lines = [f"query {plan.query_id}: goes on with batch {plan.next_batch}"]
    lines += [f"  {partition}  from offset {offset:,}" for partition, offset in sorted(plan.offsets.items())]
    if plan.repeats:
        lines.append(
            f"batch {plan.next_batch} was planned by the old job and not finished: it runs again, with the same "
            f"offsets. What the old job has written of it, at least once, stays in its output"
        )
    lines.append(f"{plan.source} is copied to {plan.target}")
    return "\n".join(lines)

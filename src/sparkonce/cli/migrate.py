"""`sparkonce migrate`: a pipeline goes on where a job of Spark's built-in connector stopped."""

from __future__ import annotations

from pathlib import Path

import click

from sparkonce.pipeline import load
from sparkonce.pipeline.migration import Migration, plan_migration
from sparkonce.pipeline.migration import migrate as copy_checkpoint
from sparkonce.pipeline.model import located
from sparkonce.pipeline.secret import revealed


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--from-checkpoint", required=True, metavar="DIR", help="The checkpoint of the job; it is not changed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def migrate(file: Path, from_checkpoint: str, yes: bool) -> None:  # noqa: FBT001
    """Continue a job of Spark's built-in Kafka connector.

    Stop the job first. Its checkpoint is copied to where the pipeline file says, and the pipeline reads on from there:
    nothing is skipped, and nothing is read twice.

    \b
    Example:
      sparkonce migrate orders.toml --from-checkpoint /data/checkpoints/old-orders
    """
    pipeline = load(file)
    plan = plan_migration(from_checkpoint, located(revealed(pipeline.checkpoint), pipeline.folder))
    click.echo(described(plan))
    if not yes:
        click.confirm("Has the job ended, and shall its checkpoint be copied?", abort=True)
    copy_checkpoint(plan)
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

"""`sparkonce verify`: is everything in the output, and once?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from sparkonce.cli.run import with_logs_on_stderr
from sparkonce.pipeline import load
from sparkonce.pipeline.build import session
from sparkonce.pipeline.verifying import verify_pipeline
from sparkonce.spark.verify import Verdict

_COUNTS = ("expected", "found", "missing", "doubled", "unexpected", "altered", "out_of_order")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--id", "id_expression", metavar="SQL", help="What tells records apart, over key, value and headers.")
@click.option("--header", metavar="NAME", help="The same: the header with this name.")
@click.option("--json", "as_json", is_flag=True, help="The counts as JSON.")
@click.pass_context
def verify(ctx: click.Context, file: Path, id_expression: str | None, header: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Compare a pipeline's output with what its input should have become.

    Reads the input up to the last committed micro-batch, runs the pipeline's transform over it again, and reads the
    output as a read_committed reader does. It is for transforms that look at each record by itself. Without --id the
    whole record tells it apart, and an altered one is one missing and one unexpected.

    \b
    Example:
      sparkonce verify orders.toml --id "get_json_object(string(value), '$.id')"
    """
    if id_expression and header:
        raise click.UsageError("--id and --header exclude each other")
    pipeline = load(file)
    with_logs_on_stderr()
    spark = session(pipeline)
    try:
        verdict = verify_pipeline(spark, pipeline, id_expression=id_expression, header=header)
    finally:
        spark.stop()
    click.echo(json.dumps(asdict(verdict)) if as_json else table(verdict))
    ctx.exit(0 if verdict.is_right else 1)


def table(verdict: Verdict) -> str:
    """The counts, with examples of what is wrong."""
    lines = []
    for name in _COUNTS:
        count = getattr(verdict, name)
        shown = "not judged: the query has no order" if count is None else f"{count:,}"
        examples = verdict.examples.get(name, ())
        lines.append(f"  {name.replace('_', ' '):<14}{shown:>14}" + (f"   {', '.join(examples)}" if examples else ""))
    lines.append("exactly once" if verdict.is_right else "NOT exactly once")
    return "\n".join(lines)

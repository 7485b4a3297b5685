"""`sparkonce check`: is a pipeline file right? Starts nothing and connects to nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sparkonce.pipeline import Pipeline, load_text
from sparkonce.pipeline.loading import read
from sparkonce.pipeline.problems import Problem, report
from sparkonce.pipeline.schema import json_schema
from sparkonce.pipeline.summary import summary


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of pipeline files, for editors; needs no FILE.")
@click.pass_context
def check(context: click.Context, file: Path | None, as_json: bool, schema: bool) -> None:  # noqa: FBT001
    """Check the pipeline FILE: every problem at once, with its line. Exit code 0 if it is right, 1 if not.

    \b
    Example:
      sparkonce check orders.toml
      sparkonce check orders.toml --json
      sparkonce check --schema > pipeline.schema.json
    """
    if schema:
        click.echo(json.dumps(json_schema(), indent=1, ensure_ascii=False))
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE'.", context)
    loaded = load_text(read(file), file.parent)
    if as_json:
        click.echo(json.dumps(record(file, loaded.pipeline, loaded.problems), indent=1, ensure_ascii=False))
    elif loaded.pipeline is None:
        click.echo(report(str(file), loaded.problems))
    else:
        click.echo(f"{file} is right: {summary(loaded.pipeline)}")
    context.exit(0 if loaded.pipeline is not None else 1)


def record(file: Path, pipeline: Pipeline | None, problems: list[Problem]) -> dict[str, Any]:
    """The outcome for programs."""
    return {
        "file": str(file),
        "ok": pipeline is not None,
        "summary": summary(pipeline) if pipeline is not None else None,
        "problems": [{"line": problem.line, "key": problem.key, "message": problem.message} for problem in problems],
    }

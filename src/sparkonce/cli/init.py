"""`sparkonce init`: a commented pipeline file to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from sparkonce.cli.reports import echo_json, json_option
from sparkonce.errors import UsageError
from sparkonce.pipeline.template import lines_to_edit, template


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default="pipeline.toml")
@json_option
def init(file: Path, as_json: bool) -> None:  # noqa: FBT001
    """Write a commented pipeline file, FILE (pipeline.toml if not given), and say what to edit.

    \b
    Example:
      sparkonce init orders.toml
      sparkonce check orders.toml
    """
    text = template(file.name)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise UsageError(f"{file} is there already; it stays as it is. Give another name, or remove it first") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
    edits = [(number, *map(str.strip, line.split("# EDIT:"))) for number, line in lines_to_edit(text)]
    if as_json:
        lines = [{"line": number, "setting": setting, "what": comment} for number, setting, comment in edits]
        echo_json({"file": str(file), "edit": lines})
        return
    click.echo(f"{file} is written. Edit these lines:")
    for number, setting, comment in edits:
        click.echo(f"  line {number}: {setting}\n           {comment}")
    click.echo(f"Then: sparkonce check {file}")

"""`sparkonce init`: a commented pipeline file to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from sparkonce.errors import UsageError
from sparkonce.pipeline.template import lines_to_edit, template


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default="pipeline.toml")
def init(file: Path) -> None:
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
    click.echo(f"{file} is written. Edit these lines:")
    for number, line in lines_to_edit(text):
        setting, _, comment = line.partition("# EDIT:")
        click.echo(f"  line {number}: {setting.strip()}\n           {comment.strip()}")
    click.echo(f"Then: sparkonce check {file}")

"""What the commands for operations share: options, JSON, and asking before something is changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from sparkonce.errors import UsageError
from sparkonce.options import ConnectionOptions

Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
file_argument = click.argument("file", type=click.Path(path_type=Path))


def connection_options(command: Command) -> Command:
    """How a command without a pipeline file finds its cluster."""
    servers = click.option("--bootstrap-server", "servers", metavar="HOST:PORT,…", help="Where the cluster is.")
    properties = click.option(
        "--property", "properties", multiple=True, metavar="KEY=VALUE", help="A client property, by its Java name."
    )
    pipeline = click.option(
        "--pipeline", type=click.Path(path_type=Path), help="Take the cluster of this pipeline file's sink instead."
    )
    return servers(properties(pipeline(command)))


def connection_of(servers: str | None, properties: tuple[str, ...], pipeline: Path | None) -> ConnectionOptions:
    """The cluster that was named."""
    if (servers is None) == (pipeline is None):
        raise click.UsageError("Give either --bootstrap-server HOST:PORT or --pipeline FILE.")
    if pipeline is not None:
        from sparkonce.cli.query_file import load_query  # noqa: PLC0415  Takes a second to import.

        query = load_query(pipeline)
        return query.sink.connection if query.sink is not None else query.source.connection
    return ConnectionOptions.from_properties(servers or "", dict(_key_and_value(text) for text in properties))


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--property")
    return key.strip(), value.strip()


def echo_json(record: Any) -> None:
    """One JSON object for programs."""
    click.echo(json.dumps(record, indent=1, ensure_ascii=False))


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    """Asks a person; a program must say --yes."""
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise UsageError("nothing was changed: nobody can be asked here, so add --yes if it is what you want")
    click.confirm(question, abort=True, err=True)

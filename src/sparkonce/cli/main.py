"""The command line's root: its nouns, and how errors look.

To add a noun, write `sparkonce/cli/<noun>.py` with a click command or group of the same name, and add it to NOUNS.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from sparkonce.errors import SparkonceError

NOUNS = (
    "broker",
    "check",
    "doctor",
    "init",
    "lag",
    "migrate",
    "offsets",
    "recover",
    "run",
    "submit",
    "transactions",
    "verify",
)


class Nouns(click.Group):
    """Imports a noun when it is used, and shows this package's errors as one message.

    Some nouns need compiled kernels and client libraries, which take a second or two to import; `broker status` does
    not, and should answer at once.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All nouns, without importing them."""
        return list(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of one noun."""
        if cmd_name not in NOUNS:
            return None
        command: click.Command = getattr(importlib.import_module(f"sparkonce.cli.{cmd_name}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; a traceback is shown only with --debug."""
        try:
            return super().invoke(ctx)
        except SparkonceError as error:
            if ctx.params["debug"]:
                raise
            raise click.ClickException(str(error)) from error


@click.group(cls=Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sparkonce")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:  # noqa: FBT001 - read by Nouns
    """Exactly-once Kafka for PySpark.

    \b
    Example:
      sparkonce broker start --port 19092
    """


def main() -> None:
    """The entry point of `sparkonce` and of `python -m sparkonce`."""
    cli(prog_name="sparkonce")


if __name__ == "__main__":
    main()

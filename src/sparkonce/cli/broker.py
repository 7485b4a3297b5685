"""`sparkonce broker`: a real Apache Kafka on this machine, in the background.

Turns arguments into settings and results into text; everything else is `sparkonce.devbroker`.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import click

from sparkonce.devbroker.background import Health, background_health, start_background, stop_background
from sparkonce.devbroker.class_archive import make_class_archive
from sparkonce.devbroker.jars import fetch_jars
from sparkonce.devbroker.logs import follow, last_lines
from sparkonce.devbroker.settings import BrokerSettings
from sparkonce.errors import SparkonceError, UsageError

DEFAULT_PORT = 19092
DEFAULTS = BrokerSettings()

name_option = click.option("--name", default="default", show_default=True, help="For several brokers side by side.")


@click.group()
def broker() -> None:
    """A real Apache Kafka on this machine, for demos and tests.

    \b
    Example:
      sparkonce broker start --port 19092
      sparkonce broker status
      sparkonce broker stop
    """


@broker.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The first broker's port; further brokers get the next ones. 0: free ports.",
)
@click.option("--brokers", type=click.Choice(["1", "3"]), default=str(DEFAULTS.brokers), show_default=True)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the data here. Default: a temporary folder that `stop` removes.",
)
@click.option(
    "--transaction-version",
    type=click.Choice(["1", "2"]),
    default=str(DEFAULTS.transaction_version),
    show_default=True,
    help="Kafka's transaction protocol: 1 old, 2 new.",
)
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="A broker property; repeatable.")
@click.option(
    "--heap",
    type=click.IntRange(64),
    default=DEFAULTS.heap_megabytes,
    show_default=True,
    metavar="MB",
    help="Memory of each broker.",
)
@name_option
def start(
    port: int,
    brokers: str,
    data: Path | None,
    transaction_version: Literal["1", "2"],
    properties: tuple[str, ...],
    heap: int,
    name: str,
) -> None:
    """Start a broker in the background and print its address.

    \b
    Example:
      sparkonce broker start --port 19092 --brokers 3 --property log.retention.hours=1
    """
    settings = BrokerSettings(
        brokers=int(brokers),
        port=port or None,
        data=data.absolute() if data else None,
        transaction_version=1 if transaction_version == "1" else 2,
        properties=dict(key_and_value(text) for text in properties),
        heap_megabytes=heap,
    )
    with ended_like_an_interrupt():
        state = start_background(name, settings, say)
    click.echo(state.bootstrap_servers)


@broker.command()
@click.option(
    "--grace",
    default=DEFAULTS.stop_seconds,
    show_default=True,
    metavar="SECONDS",
    help="How long a broker with kept data may take before it is killed.",
)
@name_option
def stop(grace: float, name: str) -> None:
    """Stop the broker; a temporary data folder is removed.

    \b
    Example:
      sparkonce broker stop
    """
    outcome = stop_background(name, grace, say)
    click.echo(
        {
            "stopped": f"Broker {name!r} is stopped.",
            "gone": f"Broker {name!r} was not running any more; its remains are removed.",
            "unknown": f"No broker {name!r} is running.",
        }[outcome]
    )


@broker.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@name_option
@click.pass_context
def status(context: click.Context, as_json: bool, name: str) -> None:  # noqa: FBT001
    """Show whether the broker runs: exit code 0 if it does, 1 if not.

    \b
    Example:
      sparkonce broker status --json
    """
    health = background_health(name)
    if as_json:
        click.echo(json.dumps(status_record(name, health), indent=1))
    else:
        click.echo(status_text(name, health))
    context.exit(0 if health is not None and health.running else 1)


@broker.command()
@click.option("-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="How many last lines.")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until Ctrl-C or the broker's end.")
@click.option("--broker", "node_id", type=click.IntRange(0), default=0, show_default=True, help="Which of three.")
@name_option
def logs(lines: int, following: bool, node_id: int, name: str) -> None:  # noqa: FBT001
    """Show the broker's log.

    \b
    Example:
      sparkonce broker logs -n 100 --follow
    """
    health = background_health(name)
    if health is None:
        raise UsageError(f"No broker {name!r} is running.")
    if node_id >= len(health.brokers):
        raise UsageError(f"There is no broker {node_id}; there are {len(health.brokers)}, counted from 0.")
    record = health.brokers[node_id].record
    text, end_bytes = last_lines(Path(record.log), lines)
    click.echo(text, nl=False)
    if following:
        for chunk in follow(Path(record.log), end_bytes, lambda: record.process.running):
            click.echo(chunk, nl=False)


@broker.command()
@click.option("--again", is_flag=True, help="Fetch even if everything is there.")
def fetch(again: bool) -> None:  # noqa: FBT001
    """Fetch Apache Kafka once, so that `start` needs no network; print where it is.

    \b
    Example:
      sparkonce broker fetch
    """
    jars = fetch_jars(again=again)
    try:
        make_class_archive(jars)
    except SparkonceError as error:
        say(f"Kafka is there, but the archive that makes its start quicker could not be made: {error}")
    click.echo(jars)


def key_and_value(text: str) -> tuple[str, str]:
    """Splits KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--property")
    return key.strip(), value.strip()


def say(text: str) -> None:
    """For the person, not for the program that reads the standard output."""
    click.echo(text, err=True)


@contextlib.contextmanager
def ended_like_an_interrupt() -> Iterator[None]:
    """A terminated or hung-up `start` cleans up as one that was interrupted."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def status_record(name: str, health: Health | None) -> dict[str, Any]:
    """The status for programs."""
    if health is None:
        return {"name": name, "running": False}
    return {
        "name": name,
        "running": health.running,
        "answers": health.answers,
        "phase": health.state.phase,
        "bootstrap_servers": health.state.bootstrap_servers,
        "cluster_id": health.state.cluster_id,
        "folder": health.state.folder,
        "temporary": health.state.temporary,
        "uptime_seconds": round(health.uptime_seconds, 1) if health.running else None,
        "settings": health.state.settings,
        "brokers": [
            {
                "node_id": one.record.node_id,
                "pid": one.record.process.pid,
                "running": one.running,
                "answers": one.answers,
                "port": one.record.port,
                "log": one.record.log,
            }
            for one in health.brokers
        ],
    }


def status_text(name: str, health: Health | None) -> str:
    """The status for people."""
    if health is None:
        return f"No broker {name!r} is running."
    state = health.state
    if not health.running:
        return (
            f"Broker {name!r} is not running: its processes ended without `stop`, perhaps with the machine. "
            "`sparkonce broker stop` removes its remains."
        )
    kind = "temporary" if state.temporary else "kept"
    lines = [
        f"Broker {name!r} is {'running' if health.answers else 'running but does not answer everywhere'}.",
        f"  address  {state.bootstrap_servers}",
        f"  uptime   {uptime_text(health.uptime_seconds)}",
        f"  data     {state.folder} ({kind})",
        f"  version  transaction.version {state.settings['transaction_version']}",
    ]
    for one in health.brokers:
        word = "answers" if one.answers else ("does not answer" if one.running else "has ended")
        lines.append(f"  broker {one.record.node_id} pid {one.record.process.pid}, port {one.record.port}: {word}")
    return "\n".join(lines)


def uptime_text(seconds: float) -> str:
    """1:02:03 for an hour, two minutes and three seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"

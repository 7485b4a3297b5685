"""What is remembered about a broker in the background, between one command and the next.

One versioned JSON file per broker, written atomically. Knows no process beyond its identity.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sparkonce.devbroker.processes import ProcessIdentity
from sparkonce.devbroker.settings import BrokerSettings
from sparkonce.errors import UsageError

STATE_VERSION = 1
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

Phase = Literal["starting", "running"]


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """One broker of the cluster: where it is and which process it is."""

    node_id: int
    port: int
    log: str
    process: ProcessIdentity


@dataclass(frozen=True, slots=True)
class BackgroundState:
    """A cluster in the background."""

    name: str
    phase: Phase
    cluster_id: str
    bootstrap_servers: str
    folder: str
    started_unix_seconds: float
    settings: dict[str, Any]
    brokers: tuple[BrokerRecord, ...]

    @property
    def processes(self) -> list[ProcessIdentity]:
        """All brokers' processes."""
        return [broker.process for broker in self.brokers]

    @property
    def temporary(self) -> bool:
        """Whether the folder goes when the broker goes."""
        return self.settings["data"] is None


def state_folder() -> Path:
    """SPARKONCE_STATE, else below the user's state folder."""
    if chosen := os.environ.get("SPARKONCE_STATE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state") / "sparkonce"


def state_path(name: str) -> Path:
    """The file of one broker; its name becomes a file's name and is checked for that."""
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a broker's name: use letters, digits, dot, dash and underscore.")
    return state_folder() / f"broker-{name}.json"


def settings_record(settings: BrokerSettings) -> dict[str, Any]:
    """The settings in JSON's types, to be compared with those of a later command."""
    return {
        "brokers": settings.brokers,
        "port": settings.port,
        "data": None if settings.data is None else str(settings.data),
        "transaction_version": settings.transaction_version,
        "properties": dict(settings.properties),
        "heap_megabytes": settings.heap_megabytes,
    }


def write_state(state: BackgroundState) -> None:
    """Replaces the file in one step: a reader sees the old or the new one."""
    path = state_path(state.name)
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps({"version": STATE_VERSION, **asdict(state)}, indent=1) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise UsageError(f"The state file {path} cannot be written: {error.strerror}.") from error


def read_state(name: str) -> BackgroundState | None:
    """What is remembered, or None when nothing is."""
    path = state_path(name)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content.pop("version")
        if version == STATE_VERSION:
            brokers = tuple(broker_record(broker) for broker in content.pop("brokers"))
            return BackgroundState(**content, brokers=brokers)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(
            f"The state file {path} is damaged. Remove it; a broker may still run: look for kafka.Kafka."
        ) from error
    raise UsageError(f"The state file {path} has version {version}; this sparkonce reads version {STATE_VERSION}.")


def broker_record(content: dict[str, Any]) -> BrokerRecord:
    """One broker as the file has it."""
    return BrokerRecord(**{**content, "process": ProcessIdentity(**content["process"])})


def remove_state(name: str) -> None:
    """Forgets the broker."""
    state_path(name).unlink(missing_ok=True)

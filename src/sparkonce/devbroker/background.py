"""A dev broker that outlives the command which started it: started, looked at and stopped by its name.

Everything it knows of an earlier command is in the state file; a recycled pid is never taken for a broker.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sparkonce.deadline import Deadline
from sparkonce.devbroker.cluster import TEMPORARY_PREFIX, Cluster
from sparkonce.devbroker.launch import Launched, launch_detached
from sparkonce.devbroker.locks import file_lock
from sparkonce.devbroker.ports import LOOPBACK
from sparkonce.devbroker.probe import ask_broker
from sparkonce.devbroker.processes import end_processes, still_running
from sparkonce.devbroker.properties import NodeLayout
from sparkonce.devbroker.settings import BrokerSettings
from sparkonce.devbroker.state import (
    BackgroundState,
    BrokerRecord,
    read_state,
    remove_state,
    settings_record,
    state_path,
    write_state,
)
from sparkonce.devbroker.storage import DESCRIPTION_FILE
from sparkonce.errors import RetriableError, UsageError

LOCK_SECONDS = 180.0
PROBE_SECONDS = 3.0

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """One broker now."""

    record: BrokerRecord
    running: bool
    answers: bool


@dataclass(frozen=True, slots=True)
class Health:
    """A remembered cluster now."""

    state: BackgroundState
    brokers: tuple[BrokerHealth, ...]

    @property
    def running(self) -> bool:
        """Whether any of its processes runs."""
        return any(broker.running for broker in self.brokers)

    @property
    def answers(self) -> bool:
        """Whether every broker answers."""
        return all(broker.answers for broker in self.brokers)

    @property
    def uptime_seconds(self) -> float:
        """Since it was started."""
        return max(0.0, time.time() - self.state.started_unix_seconds)


def start_background(name: str, settings: BrokerSettings, note: Note) -> BackgroundState:
    """Starts the broker, or finds it running with the same settings."""
    with one_at_a_time(name, note):
        found = read_state(name)
        if found is not None and still_running(found.processes):
            return already_running(found, settings, note)
        if found is not None:
            note(f"Broker {name!r} ended without `stop` (a restart of the machine?); its remains are removed.")
            forget(found)
        return start_new(name, settings)


def already_running(found: BackgroundState, settings: BrokerSettings, note: Note) -> BackgroundState:
    """The running broker, if it is the one that is asked for."""
    wanted = settings_record(settings)
    other = [f"{key}={found.settings.get(key)}" for key, value in wanted.items() if found.settings.get(key) != value]
    if other:
        raise UsageError(
            f"Broker {found.name!r} is running already at {found.bootstrap_servers} with other settings "
            f"({', '.join(other)}). Stop it first, or give the new one another --name and --port."
        )
    if not health_of(found).answers:
        raise UsageError(f"Broker {found.name!r} is running but does not answer. Stop it, then start it again.")
    note(f"Broker {found.name!r} is running already.")
    return found


def start_new(name: str, settings: BrokerSettings) -> BackgroundState:
    """Starts it; the processes are on record before anything is waited for."""

    def launch(layout: NodeLayout, command: Sequence[str]) -> Launched:
        return launch_detached(command, layout.log)

    def record(cluster: Cluster) -> None:
        write_state(describe(name, cluster))

    cluster = Cluster(settings, launch, record)
    try:
        cluster.open()
    except BaseException:
        # Opening has ended what it started. What it could not end stays on record, for `stop`.
        if not still_running(cluster.processes):
            remove_state(name)
        raise
    state = replace(describe(name, cluster), phase="running")
    write_state(state)
    return state


def describe(name: str, cluster: Cluster) -> BackgroundState:
    """What has to be remembered about a cluster whose processes exist."""
    brokers = tuple(
        BrokerRecord(layout.node_id, layout.client_port, str(layout.log), process)
        for layout, process in zip(cluster.layouts, cluster.processes, strict=True)
    )
    return BackgroundState(
        name=name,
        phase="starting",
        cluster_id=cluster.cluster_id,
        bootstrap_servers=cluster.bootstrap_servers,
        folder=str(cluster.folder),
        started_unix_seconds=time.time(),
        settings=settings_record(cluster.settings),
        brokers=brokers,
    )


def stop_background(name: str, grace_seconds: float, note: Note) -> Literal["stopped", "gone", "unknown"]:
    """Ends every process by its id. "gone": it had ended before. "unknown": there was none."""
    with one_at_a_time(name, note):
        found = read_state(name)
        if found is None:
            return "unknown"
        was_running = bool(still_running(found.processes))
        left = end_processes(found.processes, 0.0 if found.temporary else grace_seconds)
        if left:
            raise RetriableError(f"These processes could not be ended: {[process.pid for process in left]}")
        forget(found)
        return "stopped" if was_running else "gone"


def background_health(name: str) -> Health | None:
    """How the broker of that name is, or None when none is remembered."""
    found = read_state(name)
    return None if found is None else health_of(found)


def health_of(state: BackgroundState) -> Health:
    """Looks at every process and asks every broker."""
    return Health(state, tuple(broker_health(state.cluster_id, broker) for broker in state.brokers))


def broker_health(cluster_id: str, broker: BrokerRecord) -> BrokerHealth:
    """A broker answers only if it is of this cluster: after a crash another may listen on its port."""
    running = broker.process.running
    view = ask_broker(LOOPBACK, broker.port, PROBE_SECONDS) if running else None
    return BrokerHealth(broker, running, view is not None and view.cluster_id == cluster_id)


def forget(state: BackgroundState) -> None:
    """Removes the state, and the folder if it is a temporary one of ours beyond doubt."""
    folder = Path(state.folder)
    if state.temporary and folder.name.startswith(TEMPORARY_PREFIX) and (folder / DESCRIPTION_FILE).exists():
        shutil.rmtree(folder, ignore_errors=True)
    remove_state(state.name)


@contextmanager
def one_at_a_time(name: str, note: Note) -> Iterator[None]:
    """Two commands about the same broker wait for each other."""

    def waiting() -> None:
        note(f"Another command is busy with broker {name!r}; waiting for it.")

    with file_lock(state_path(name).with_suffix(".lock"), Deadline.after(LOCK_SECONDS), waiting):
        yield

"""One broker of a cluster: its process, its signals, and how its death is explained.

Knows nothing about the other brokers.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker.failures import DISK_FULL, PORT_TAKEN, find_cause, meaningful_lines
from sparkonce.devbroker.launch import Launched
from sparkonce.devbroker.ports import LOOPBACK
from sparkonce.devbroker.probe import ask_broker
from sparkonce.devbroker.processes import ProcessIdentity, end_processes, is_paused, send_signal
from sparkonce.devbroker.properties import NodeLayout
from sparkonce.errors import RetriableError, SparkonceError, UsageError
from sparkonce.java import cache_folder

PROBE_SECONDS = 5.0
LEAST_PROBE_SECONDS = 0.1
PAUSE_SECONDS = 10.0
LOG_TAIL_BYTES = 200_000
LEAST_FREE_BYTES = 1 << 20

Launcher = Callable[[NodeLayout, Sequence[str]], Launched]


class PortTakenError(UsageError):
    """Somebody took a port between choosing and using it."""


class Node:
    """One broker. Not running until `launch`."""

    def __init__(self, layout: NodeLayout, command: Sequence[str], launcher: Launcher) -> None:
        self.layout = layout
        self._command = command
        self._launcher = launcher
        self._launched: Launched | None = None
        self._log_start_bytes = 0

    @property
    def process(self) -> ProcessIdentity | None:
        """The broker's process, also when it has ended."""
        return self._launched.identity if self._launched else None

    @property
    def running(self) -> bool:
        """Whether there is a process; it may be paused."""
        return self._launched is not None and self._launched.running

    def launch(self) -> None:
        """Starts the process; it does not answer yet."""
        if self.running:
            raise UsageError(f"Broker {self.layout.node_id} is running already.")
        self._log_start_bytes = self.layout.log.stat().st_size if self.layout.log.exists() else 0
        self._launched = self._launcher(self.layout, self._command)

    def sees(self, cluster_id: str, brokers: frozenset[int], deadline: Deadline) -> bool:
        """Whether it answers, belongs to that cluster and knows these brokers to be alive."""
        timeout_seconds = max(LEAST_PROBE_SECONDS, deadline.sooner_ms(int(PROBE_SECONDS * 1000)).remaining_seconds)
        view = ask_broker(LOOPBACK, self.layout.client_port, timeout_seconds)
        return view is not None and view.cluster_id == cluster_id and brokers <= view.live_brokers

    def send(self, number: signal.Signals) -> ProcessIdentity:
        """Signals the running process."""
        if self._launched is None or not send_signal(self._launched.identity, number):
            raise UsageError(f"Broker {self.layout.node_id} is not running.")
        return self._launched.identity

    def pause(self) -> None:
        """Stops the process and returns when it has stopped, so that nothing is answered from then on."""
        process = self.send(signal.SIGSTOP)
        if not wait_until(lambda: is_paused(process.pid), Deadline.after(PAUSE_SECONDS)):
            raise RetriableError(f"Broker {self.layout.node_id} did not stop its clock in {PAUSE_SECONDS:.0f} s.")

    def end(self, grace_seconds: float) -> None:
        """Ends the process and waits for that; nothing happens when there is none."""
        if self._launched is None:
            return
        left = end_processes([self._launched.identity], grace_seconds)
        if left:
            raise RetriableError(f"Broker {self.layout.node_id}, process {left[0].pid}, could not be ended.")
        self.reap()

    def reap(self) -> None:
        """Takes an ended process off the process table."""
        if self._launched is not None:
            self._launched.reap()

    def failure(self) -> SparkonceError:
        """Why it is not there, from what it wrote since it was launched."""
        return explained(self.layout, log_since(self.layout.log, self._log_start_bytes))


def explained(layout: NodeLayout, log: str) -> SparkonceError:
    """The error to raise for a broker with this log; the log itself is kept for the reader."""
    cause = find_cause(log) or (DISK_FULL if is_full(layout.folder) else None)
    reason = cause.advice if cause else "the log does not show a known cause"
    lines = "".join(f"\n  {line}" for line in meaningful_lines(log))
    kept = keep_log(layout)
    where = f"\nThe whole log: {kept}" if kept else ""
    message = f"Broker {layout.node_id} ({layout.address}) did not start: {reason}.{lines}{where}"
    return PortTakenError(message) if cause is PORT_TAKEN else UsageError(message)


def is_full(folder: Path) -> bool:
    """Whether the disk has next to nothing left; then the log itself may be missing its end."""
    try:
        return shutil.disk_usage(folder).free < LEAST_FREE_BYTES
    except OSError:
        return False


def log_since(log: Path, start_bytes: int) -> str:
    """The log from there on; of a very long one only the end."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(start_bytes, size - LOG_TAIL_BYTES))
        return file.read().decode("utf-8", errors="replace")
    return ""


def keep_log(layout: NodeLayout) -> Path | None:
    """Copies the log to where it survives the broker's folder. Only the last failed start is kept."""
    kept = cache_folder() / "last-failed-start" / f"broker-{layout.node_id}.log"
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(layout.log, kept)
    except OSError:
        return None
    return kept

"""Processes named so that they cannot be mistaken: by pid and start time.

A pid alone may belong to someone else by the time it is used. Knows nothing about what the processes run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkonce.deadline import Deadline, wait_until

PROC = Path("/proc")
KILL_SECONDS = 10.0
ENDED = frozenset("ZX")
"""States of processes that have ended; a zombie only waits for its parent."""
PAUSED = "T"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, and never the one that gets its pid next."""

    pid: int
    started: str

    @property
    def running(self) -> bool:
        """Whether that very process still runs; one that has ended and waits for its parent does not."""
        return started_at(self.pid) == self.started


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a running process."""
    started = started_at(pid)
    return None if started is None else ProcessIdentity(pid, started)


def started_at(pid: int) -> str | None:
    """When the process was started, in the system's own words; None when it does not run."""
    seen = look_at(pid)
    return None if seen is None or seen.state in ENDED else seen.started


def is_paused(pid: int) -> bool:
    """Whether the process was stopped by a signal and waits to be continued."""
    seen = look_at(pid)
    return seen is not None and seen.state == PAUSED


@dataclass(frozen=True, slots=True)
class Look:
    """A process as the system describes it: one letter of state, and the start time."""

    state: str
    started: str


def look_at(pid: int) -> Look | None:
    """What the system knows about a process, from where this system tells it."""
    return look_in_proc(pid) if PROC.joinpath("self", "stat").exists() else look_with_ps(pid)


def look_in_proc(pid: int) -> Look | None:
    """Start in clock ticks since boot, made unique across boots. See proc(5): state is field 3, start time field 22."""
    try:
        stat = PROC.joinpath(str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name in parentheses may hold anything, also spaces and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    boot = PROC.joinpath("sys", "kernel", "random", "boot_id").read_text(encoding="utf-8").strip()
    return Look(fields[0], f"{boot}:{fields[19]}")


def look_with_ps(pid: int) -> Look | None:
    """The same for systems without /proc; to the second, which is what ps gives everywhere."""
    answer = subprocess.run(
        ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return Look(state[0], started.strip()) if state else None


def send_signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Signals the process if it still runs."""
    if not process.running:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
        return True
    return False


def end_processes(processes: Sequence[ProcessIdentity], grace_seconds: float) -> list[ProcessIdentity]:
    """Asks all to end, insists after the grace time, and returns those that are still there: normally none."""
    if grace_seconds > 0:
        for process in processes:
            # A stopped process does not see SIGTERM before it is continued.
            send_signal(process, signal.SIGTERM)
            send_signal(process, signal.SIGCONT)
        wait_until(lambda: not still_running(processes), Deadline.after(grace_seconds))
    for process in still_running(processes):
        send_signal(process, signal.SIGKILL)
    wait_until(lambda: not still_running(processes), Deadline.after(KILL_SECONDS))
    return still_running(processes)


def still_running(processes: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
    """Those of them that run."""
    return [process for process in processes if process.running]

"""Starts broker processes in one of two ways: guarded (ends with us) or detached (outlives us).

Knows commands, log files and pids; not what the command is.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from sparkonce.deadline import Deadline
from sparkonce.devbroker import guard
from sparkonce.devbroker.processes import ProcessIdentity, identify
from sparkonce.errors import RetriableError

REAP_SECONDS = 10.0
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Launched:
    """A started broker process, with the child of ours that has to be waited for."""

    def __init__(self, child: subprocess.Popen[bytes], identity: ProcessIdentity) -> None:
        self._child = child
        self.identity = identity

    @property
    def running(self) -> bool:
        """Whether the broker's process runs."""
        self._child.poll()
        return self.identity.running

    def reap(self) -> None:
        """Takes the ended child off the process table."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(REAP_SECONDS)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds Ctrl-C and the like back during the block: a process must not be started and then not be known.

    Blocking the signals would not do, as the started process would inherit that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    replaced = {number: signal.getsignal(number) for number in INTERRUPTS}
    handled = {number: handler for number, handler in replaced.items() if callable(handler)}
    for number in handled:
        signal.signal(number, lambda received_number, _: held.append(received_number))
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        for received in dict.fromkeys(held):
            signal.raise_signal(received)


def launch_guarded(command: Sequence[str], log: Path, leftover: Path | None, deadline: Deadline) -> Launched:
    """Starts a command that ends when this process ends, however it ends."""
    arguments = [str(os.getpid()), str(log), str(leftover) if leftover else "", *command]
    announcements, announce = os.pipe()
    try:
        with log.open("ab") as errors:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=announce,
                stderr=errors,
                # Its own session: Ctrl-C in a terminal is for us, and we end the brokers in order.
                start_new_session=True,
            )
    except BaseException:
        os.close(announcements)
        raise
    finally:
        os.close(announce)
    return Launched(child, announced(child, announcements, deadline))


def launch_detached(command: Sequence[str], log: Path) -> Launched:
    """Starts a command that goes on when this process has ended."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    return Launched(child, identity_or_ended(child.pid))


def announced(child: subprocess.Popen[bytes], announcements: int, deadline: Deadline) -> ProcessIdentity:
    """The broker process that the guard names in its one line of output."""
    line = b""
    try:
        with os.fdopen(announcements, "rb") as output:
            if select.select([output], [], [], deadline.remaining_seconds)[0]:
                line = output.readline()
    finally:
        if not line.strip():
            # The broker, if there is one by now, dies with its guard.
            child.kill()
            child.wait()
    if not line.strip():
        raise RetriableError("The process that guards the broker did not start in time.")
    return identity_or_ended(int(line))


def identity_or_ended(pid: int) -> ProcessIdentity:
    """The identity of a process started just now; one that has ended already is known as not running."""
    return identify(pid) or ProcessIdentity(pid, "ended at once")

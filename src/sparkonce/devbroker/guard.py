"""Runs one command that must not outlive the process which asked for it.

Started as a script, one per broker, between the Python process and the broker. A death signal from the kernel alone
would not do: it is tied to the parent's *thread*, and test runners start brokers from threads that end early. So
this single-threaded process watches its parent, and the broker has a death signal tied to this process.
Uses the standard library only, as it runs without the package's own environment.

    arguments: parent's pid, log file, folder to remove if the parent vanished ("" for none), command …
    output:    the command's pid, in one line
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

WATCH_SECONDS = 0.25
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Starts the command and stays until it or the parent ends."""
    parent, log, leftover, *command = arguments
    # Taken before the command exists, so that nothing can happen unseen in between.
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    with Path(log).open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: die_with_parent(libc),  # noqa: PLW1509 - this process has one thread
        )
    # If the parent died already, nobody reads this; the loop below notices.
    os.write(1, f"{process.pid}\n".encode())
    os.close(1)
    while True:
        try:
            return process.wait(WATCH_SECONDS)
        except subprocess.TimeoutExpired:
            if os.getppid() != int(parent):
                process.kill()
                process.wait()
                remove_leftover(leftover)
                return 1


def die_with_parent(libc: ctypes.CDLL | None) -> None:
    """Runs in the child before the command: the kernel kills it if this guard is killed."""
    if libc is not None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def remove_leftover(leftover: str) -> None:
    """Removes the broker's folder, and the cluster's folder when no broker's folder is left in it."""
    if not leftover:
        return
    shutil.rmtree(leftover, ignore_errors=True)
    cluster = Path(leftover).parent
    if not any(path.is_dir() for path in cluster.iterdir()):
        shutil.rmtree(cluster, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.exit(main(sys.argv[1:]))

"""A lock between processes of one machine, as a file. The kernel gives it back when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from sparkonce.deadline import Deadline, wait_until
from sparkonce.errors import RetriableError, UsageError


@contextlib.contextmanager
def file_lock(path: Path, deadline: Deadline, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds the lock during the block; `on_wait` is called once if another process has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"The folder {path.parent} cannot be written: {error.strerror}.") from error
    try:
        if not taken(descriptor):
            on_wait()
            if not wait_until(lambda: taken(descriptor), deadline):
                raise RetriableError(f"Another process holds {path} and does not finish.")
        yield
    finally:
        os.close(descriptor)


def taken(descriptor: int) -> bool:
    """Tries to take the lock, without waiting."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

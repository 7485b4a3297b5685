"""A desk at which tests play the tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sparkonce.model import TopicPartition


def desk_threads() -> list[str]:
    """The desk's threads that live."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("sparkonce-grant")]


def failing(error: Exception) -> Callable[[list[TopicPartition]], None]:
    """Partitions cannot be announced."""

    def announce(_: list[TopicPartition]) -> None:
        raise error

    return announce

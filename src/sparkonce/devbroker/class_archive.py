"""Java's class-data archive for the brokers: a start with it takes about half of the processor time.

An optional speed-up, made once per Java by running a throw-away broker to its end. The JVM itself checks that an
archive fits its own build and the class path, and goes on without one that does not.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from sparkonce.deadline import Deadline
from sparkonce.devbroker.cluster import DevBroker
from sparkonce.devbroker.command import archive_path
from sparkonce.devbroker.locks import file_lock
from sparkonce.java import find_java

BUILD_SECONDS = 120.0


def make_class_archive(jars: Path) -> Path:
    """The archive beside the jars; made now if it is missing."""
    archive = archive_path(find_java(), jars)
    with (
        file_lock(jars.parent / "archive.lock", Deadline.after(BUILD_SECONDS), lambda: None),
        tempfile.TemporaryDirectory(dir=jars.parent, prefix="archiving-") as work,
    ):
        if archive.exists():
            return archive
        draft = Path(work) / archive.name
        options = (f"-XX:ArchiveClassesAtExit={draft}",)
        with DevBroker(jvm_options=options, stop_seconds=BUILD_SECONDS / 2) as broker:
            broker.stop(0)
        if draft.exists():
            draft.rename(archive)
    return archive

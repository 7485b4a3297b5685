"""Kafka's jars in the user's cache: fetched once, checked at every use, fetched again when broken.

The folder appears whole or not at all. A manifest inside it lists every jar with its size and checksum.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

from sparkonce.deadline import Deadline
from sparkonce.devbroker import ivy
from sparkonce.devbroker.locks import file_lock
from sparkonce.devbroker.progress import Progress
from sparkonce.errors import RetriableError
from sparkonce.java import cache_folder, find_java

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
FETCH_SECONDS = 900.0
EXPECTED = (
    f"kafka_{ivy.SCALA_VERSION}-{ivy.KAFKA_VERSION}.jar",
    f"kafka-clients-{ivy.KAFKA_VERSION}.jar",
    f"kafka-server-{ivy.KAFKA_VERSION}.jar",
    f"kafka-tools-{ivy.KAFKA_VERSION}.jar",
    f"log4j-core-{ivy.LOG4J_VERSION}.jar",
    f"log4j-slf4j-impl-{ivy.LOG4J_VERSION}.jar",
)


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the manifest."""

    name: str
    size_bytes: int
    sha256: str


def kafka_jars() -> Path:
    """The folder with all of Kafka's jars; they are fetched if they are missing or broken. Quick when they are not."""
    folder = jars_folder()
    return folder if folder.exists() and not problems(folder) else fetch_jars()


def fetch_jars(*, again: bool = False) -> Path:
    """The same with every checksum computed; `again` fetches in any case."""
    folder = jars_folder()
    progress = Progress(f"Apache Kafka {ivy.KAFKA_VERSION}", sys.stderr)
    deadline = Deadline.after(FETCH_SECONDS)

    def waiting() -> None:
        progress.note("Another process is fetching Kafka; waiting for it")

    with file_lock(folder.parent / "fetch.lock", deadline, waiting):
        # Looked at under the lock: another process may have fetched them while this one waited.
        found = thorough_problems(folder) if folder.exists() else []
        if folder.exists() and not found and not again:
            return folder
        if found:
            progress.note(f"Kafka's jars are broken and are fetched again: {'; '.join(found[:3])}")
        fetch(folder, deadline, progress)
    return folder


def jars_folder() -> Path:
    """Named after what it holds, so that a change of the list is a new folder."""
    content = hashlib.sha256(ivy.MODULE.encode()).hexdigest()[:8]
    return cache_folder() / f"kafka-{ivy.KAFKA_VERSION}-{content}"


def problems(folder: Path) -> list[str]:
    """What is wrong with the folder, by names and sizes only: this runs at every start."""
    try:
        manifest = read_manifest(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return [f"{folder / MANIFEST} cannot be read"]
    found = []
    for jar in manifest:
        path = folder / jar.name
        if not path.is_file():
            found.append(f"{jar.name} is missing")
        elif path.stat().st_size != jar.size_bytes:
            found.append(f"{jar.name} has {path.stat().st_size} bytes instead of {jar.size_bytes}")
    return found


def thorough_problems(folder: Path) -> list[str]:
    """The same by content: every checksum is computed."""
    return problems(folder) or [
        f"{jar.name} has another content" for jar in read_manifest(folder) if described(folder / jar.name) != jar
    ]


def fetch(folder: Path, deadline: Deadline, progress: Progress) -> None:
    """Fetches beside the folder, verifies, then renames into place."""
    progress.note(f"Fetching Apache Kafka {ivy.KAFKA_VERSION} (45 MB, about half a minute) into {folder}")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as work:
        jars = retrieve_verified(Path(work), deadline, progress)
        manifest = [described(path) for path in sorted(jars.glob("*.jar"))]
        write_manifest(jars, manifest)
        if folder.exists():
            folder.rename(Path(work) / "replaced")
        jars.rename(folder)
    size = sum(jar.size_bytes for jar in manifest)
    progress.note(f"Apache Kafka {ivy.KAFKA_VERSION} is ready: {len(manifest)} jars, {size / 1e6:.0f} MB")


def retrieve_verified(work: Path, deadline: Deadline, progress: Progress) -> Path:
    """A folder of good jars. A jar that Ivy keeps in its own cache may be broken too: then once more without it."""
    ivy_cache = cache_folder() / "ivy"
    found: list[str] = []
    for attempt in ("first", "second"):
        place = work / attempt
        place.mkdir()
        jars = ivy.retrieve(find_java(), place, ivy_cache, deadline, progress.show)
        found = broken_jars(jars)
        if not found:
            return jars
        progress.note(f"Ivy's cache is broken and is emptied: {'; '.join(found[:3])}")
        shutil.rmtree(ivy_cache, ignore_errors=True)
    raise RetriableError(f"The fetched jars are broken: {'; '.join(found[:5])}. {ivy.ADVICE}")


def broken_jars(folder: Path) -> list[str]:
    """Reads every byte of every jar: zip structure and the checksum of each entry."""
    found = [f"{name} is missing" for name in EXPECTED if not (folder / name).is_file()]
    for path in sorted(folder.glob("*.jar")):
        try:
            with zipfile.ZipFile(path) as archive:
                entry = archive.testzip()
        except (OSError, zipfile.BadZipFile, EOFError, ValueError) as error:
            found.append(f"{path.name} is not a jar ({error})")
        else:
            found.extend([f"{path.name} has a damaged entry {entry}"] if entry else [])
    return found


def described(path: Path) -> Jar:
    """The manifest's line for a jar."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Jar(path.name, path.stat().st_size, digest)


def write_manifest(folder: Path, jars: list[Jar]) -> None:
    """The last file to be written."""
    content = {"version": MANIFEST_VERSION, "kafka": ivy.KAFKA_VERSION, "jars": [asdict(jar) for jar in jars]}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> list[Jar]:
    """The jars that the folder should have."""
    content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if content["version"] != MANIFEST_VERSION:
        raise ValueError(f"manifest version {content['version']}")
    return [Jar(**line) for line in content["jars"]]

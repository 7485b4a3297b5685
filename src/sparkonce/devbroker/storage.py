"""The folder of a dev broker: made once, formatted once, found again.

A small file in the folder says which cluster it holds, so that a later start reuses the data or refuses clearly.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sparkonce.deadline import Deadline
from sparkonce.devbroker.properties import LOGGING, NodeLayout, properties_text, server_properties
from sparkonce.devbroker.settings import BrokerSettings
from sparkonce.errors import RetriableError, UsageError

DESCRIPTION_FILE = "sparkonce-broker.json"
DESCRIPTION_VERSION = 1


@dataclass(frozen=True, slots=True)
class Description:
    """What a data folder holds, as it was formatted."""

    cluster_id: str
    brokers: int
    transaction_version: int


class FormatFailedError(Exception):
    """Kafka's storage tool refused; its words are in the node's log."""

    def __init__(self, node: NodeLayout) -> None:
        super().__init__(f"formatting {node.data} failed")
        self.node = node


def claim_folder(folder: Path, settings: BrokerSettings) -> Description:
    """The description of the folder's cluster; written now if the folder is new."""
    wanted = Description(new_cluster_id(), settings.brokers, settings.transaction_version)
    path = folder / DESCRIPTION_FILE
    if path.exists():
        return checked(read_description(path), wanted, folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"The data folder {folder} is not empty and was not made by a dev broker.")
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"version": DESCRIPTION_VERSION, **asdict(wanted)}) + "\n", encoding="utf-8")
    draft.replace(path)
    return wanted


def read_description(path: Path) -> Description:
    """Reads the file, or says that it is not ours to read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content.pop("version")
        if version == DESCRIPTION_VERSION:
            return Description(**content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path} is damaged; remove the folder to start with an empty broker.") from error
    raise UsageError(f"{path} has version {version}; this sparkonce reads version {DESCRIPTION_VERSION}.")


def checked(found: Description, wanted: Description, folder: Path) -> Description:
    """The folder's description, if it is what the caller asks for."""
    for name in ("brokers", "transaction_version"):
        has, wants = getattr(found, name), getattr(wanted, name)
        if has != wants:
            raise UsageError(f"The data in {folder} was made with {name}={has}, but {name}={wants} is asked for.")
    return found


def new_cluster_id() -> str:
    """A random id as Kafka writes it: 16 bytes in 22 URL-safe letters, the first no dash, which tools misread."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def require_unused(nodes: Sequence[NodeLayout]) -> None:
    """Refuses data that a running broker holds, before anything of it is touched: Kafka locks a file in its folder."""
    for node in nodes:
        path = node.data / ".lock"
        if not path.exists():
            continue
        with path.open("ab") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UsageError(f"{node.data} is in use by another broker; stop that one first.") from error


def write_node_files(settings: BrokerSettings, nodes: Sequence[NodeLayout]) -> None:
    """Everything the brokers read at their start."""
    for node in nodes:
        node.temporary.mkdir(parents=True, exist_ok=True)
        properties = server_properties(settings, nodes, node)
        node.properties_file.write_text(properties_text(properties), encoding="ascii")
        node.logging_file.write_text(LOGGING, encoding="ascii")


def format_nodes(storage_tool: Sequence[Sequence[str]], nodes: Sequence[NodeLayout], deadline: Deadline) -> None:
    """Runs Kafka's storage tool for every node that has no storage yet, side by side: each is a JVM of a second."""
    running: list[tuple[NodeLayout, subprocess.Popen[bytes]]] = []
    try:
        for node, command in zip(nodes, storage_tool, strict=True):
            if not (node.data / "meta.properties").exists():
                with node.log.open("ab") as log:
                    running.append((node, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)))
        for node, process in running:
            if process.wait(deadline.remaining_seconds) != 0:
                raise FormatFailedError(node)
    except subprocess.TimeoutExpired as error:
        raise RetriableError("Formatting the broker's storage took too long.") from error
    finally:
        for _, process in running:
            process.kill()
            process.wait()

"""What a caller may choose about a dev broker. Every default is written here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

from sparkonce.errors import UsageError

HIGHEST_PORT = 65_535
QUICK_JVM = ("-XX:TieredStopAtLevel=1",)
"""For `jvm_options`: no optimising compiler. Saves processor time in short runs, costs it in long ones."""


class BrokerOptions(TypedDict, total=False):
    """The keyword arguments of `BrokerSettings`, for signatures that pass them on."""

    brokers: int
    port: int | None
    data: Path | None
    transaction_version: Literal[1, 2]
    properties: Mapping[str, str]
    heap_megabytes: int
    jvm_options: tuple[str, ...]
    start_seconds: float
    stop_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """One cluster.

    `port` is the first broker's; the others get the next ones. Without it, free ports are used. Without `data`, a
    temporary folder is used and removed at the end. `properties` are broker properties that win over ours.
    """

    brokers: int = 1
    port: int | None = None
    data: Path | None = None
    transaction_version: Literal[1, 2] = 2
    properties: Mapping[str, str] = field(default_factory=dict)
    heap_megabytes: int = 512
    jvm_options: tuple[str, ...] = ()
    start_seconds: float = 90.0
    stop_seconds: float = 15.0

    def __post_init__(self) -> None:
        if self.brokers not in {1, 3}:
            raise UsageError(f"A dev broker has 1 or 3 brokers, not {self.brokers}.")
        if self.transaction_version not in {1, 2}:
            raise UsageError(f"transaction_version is 1 or 2, not {self.transaction_version}.")
        if self.port is not None and not 1 <= self.port <= HIGHEST_PORT - self.brokers + 1:
            raise UsageError(f"Port {self.port} does not leave room for {self.brokers} broker(s) up to 65535.")
        if self.data is not None and "," in str(self.data):
            raise UsageError(f"The data folder's name has a comma, which Kafka reads as two folders: {self.data}")
        if self.heap_megabytes < 64:
            raise UsageError(f"A broker needs a heap of 64 MB at least, not {self.heap_megabytes}.")

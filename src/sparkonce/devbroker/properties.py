"""The files that a broker is started with: its properties and its logging. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkonce.devbroker.ports import LOOPBACK
from sparkonce.devbroker.settings import BrokerSettings

LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = warn
rootLogger.appenderRef.console.ref = console
"""
"""Log4j2's configuration: everything to the standard output, which is the broker's log file. Kafka's list of its
hundreds of settings at every start is left out; those that differ from Kafka's defaults are in the properties file."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Where one broker lives: its node id, its folder and its two ports."""

    node_id: int
    folder: Path
    client_port: int
    controller_port: int

    @property
    def data(self) -> Path:
        """Kafka's own files."""
        return self.folder / "data"

    @property
    def temporary(self) -> Path:
        """For native libraries that the JVM unpacks; in the system's folder a killed broker would leave them."""
        return self.folder / "tmp"

    @property
    def log(self) -> Path:
        """Everything the broker says."""
        return self.folder / "broker.log"

    @property
    def properties_file(self) -> Path:
        """What the broker is started with."""
        return self.folder / "server.properties"

    @property
    def logging_file(self) -> Path:
        """Log4j2's configuration."""
        return self.folder / "log4j2.properties"

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"{LOOPBACK}:{self.client_port}"


def server_properties(settings: BrokerSettings, nodes: Sequence[NodeLayout], node: NodeLayout) -> dict[str, str]:
    """All properties of one broker; the caller's own win."""
    return {
        **addresses(nodes, node),
        **replication(settings.brokers),
        **small_machine(),
        **settings.properties,
    }


def addresses(nodes: Sequence[NodeLayout], node: NodeLayout) -> dict[str, str]:
    """Who this node is and who votes. Every node is a broker and a controller."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{LOOPBACK}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{node.address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        # Static voters are read at every start, so a cluster may come back on other ports with its old data.
        "controller.quorum.voters": ",".join(f"{voter.node_id}@{LOOPBACK}:{voter.controller_port}" for voter in nodes),
        "log.dirs": str(node.data),
    }


def replication(brokers: int) -> dict[str, str]:
    """As many copies as brokers; with three, writes go on while one is away."""
    copies, in_sync = str(brokers), str(max(1, brokers - 1))
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def small_machine() -> dict[str, str]:
    """Defaults for tests: little memory, few threads, no waiting for members that will not come."""
    return {
        "auto.create.topics.enable": "false",
        "num.partitions": "1",
        # Test data often has old timestamps; nothing is deleted unless a topic asks for it.
        "log.retention.ms": "-1",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.num.partitions": "1",
        # A broker that was killed may come back only when the session of its former life has ended.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        # Allocated at the start; the default takes a quarter of a 512 MB heap.
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """A Java properties file."""
    return "".join(f"{escaped(key, ' :=#!')}={escaped(value)}\n" for key, value in properties.items())


def escaped(text: str, special: str = "") -> str:
    """Escapes as java.util.Properties reads it: Latin-1 with \\uXXXX for the rest."""
    parts = []
    for index, character in enumerate(text):
        if character == "\\" or character in special or (index == 0 and character == " "):
            parts.append("\\" + character)
        elif " " <= character <= "~":
            parts.append(character)
        else:
            units = character.encode("utf-16-be")
            parts.extend(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
    return "".join(parts)

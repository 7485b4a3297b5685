"""The command lines of Kafka's programs. Pure: values in, arguments out."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from sparkonce.devbroker.properties import NodeLayout
from sparkonce.devbroker.settings import QUICK_JVM, BrokerSettings
from sparkonce.java import Java

QUICK_START = (*QUICK_JVM, "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""For programs of a second: no optimising compiler, no collector threads, no files in the system's folder."""
BROKER_JVM = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true")


def broker_command(java: Java, jars: Path, node: NodeLayout, settings: BrokerSettings) -> list[str]:
    """Runs one broker in the foreground."""
    return [
        str(java.executable),
        "-Xms64m",
        f"-Xmx{settings.heap_megabytes}m",
        *BROKER_JVM,
        *class_archive(java, jars),
        *settings.jvm_options,
        f"-Djava.io.tmpdir={node.temporary}",
        f"-Dlog4j2.configurationFile={node.logging_file.as_uri()}",
        *classpath(jars),
        "kafka.Kafka",
        str(node.properties_file),
    ]


def format_command(java: Java, jars: Path, node: NodeLayout, cluster_id: str, transaction_version: int) -> list[str]:
    """Formats one broker's storage; leaves storage alone that is formatted already."""
    return [
        str(java.executable),
        *QUICK_START,
        *class_archive(java, jars),
        f"-Dlog4j2.configurationFile={node.logging_file.as_uri()}",
        *classpath(jars),
        "kafka.tools.StorageTool",
        "format",
        "--ignore-formatted",
        f"--cluster-id={cluster_id}",
        f"--config={node.properties_file}",
        f"--feature=transaction.version={transaction_version}",
    ]


def tool_command(java: Java, jars: Path, main_class: str, *arguments: str) -> list[str]:
    """Runs one of Kafka's command-line tools, by its class."""
    return [str(java.executable), *QUICK_START, *classpath(jars), main_class, *arguments]


def classpath(jars: Path) -> list[str]:
    """All jars, in an order that does not depend on the file system: a class archive fits one order only."""
    return ["-cp", os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))]


def class_archive(java: Java, jars: Path) -> list[str]:
    """Uses the archive of classes if it was made."""
    archive = archive_path(java, jars)
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off"] if archive.exists() else []


def archive_path(java: Java, jars: Path) -> Path:
    """Where the archive of this Java is; every Java build needs its own."""
    key = sha256(f"{java.executable.resolve()} {java.version}".encode()).hexdigest()[:12]
    return jars / f"classes-{key}.jsa"

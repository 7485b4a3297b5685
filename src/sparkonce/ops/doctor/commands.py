"""Kafka's own commands, as remedies that can be copied. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.options import ConnectionOptions
from sparkonce.wire.diagnosis import Operation

READING = (Operation.READ,)
"""READ includes DESCRIBE, and so does WRITE."""


def alter_topic(servers: str, topic: str, name: str, value: object) -> str:
    """Sets a topic's configuration."""
    return f"kafka-configs.sh --bootstrap-server {servers} --alter --topic {topic} --add-config {name}={value}"


def allow(options: ConnectionOptions, resource: str, operations: Sequence[Operation] = READING) -> str:
    """Grants operations to this client; `resource` is for instance "--topic orders"."""
    servers = ",".join(options.bootstrap_servers)
    principal = f"User:{options.sasl_username or '…'}"
    flags = " ".join(f"--operation {operation.name.capitalize()}" for operation in operations)
    return f"kafka-acls.sh --bootstrap-server {servers} --add --allow-principal {principal} {flags} {resource}"

"""Topics and configurations: creating, deleting, growing, describing. Any broker forwards to the controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any
from uuid import UUID

from sparkonce.deadline import Deadline
from sparkonce.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, Api
from sparkonce.wire.client import Client
from sparkonce.wire.cluster import NO_TOPIC_ID
from sparkonce.wire.verdicts import error_for


class ConfigOf(IntEnum):
    """What a configuration belongs to; the numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One configuration value. Sensitive ones are None."""

    value: str | None
    is_default: bool
    read_only: bool
    sensitive: bool


_DEFAULT_SOURCE = 5


def create_topics(client: Client, topics: Sequence[NewTopic], deadline: Deadline | None = None) -> dict[str, UUID]:
    """Create topics and return their ids. The first that fails is raised; the others may have been created."""
    until = client.deadline(deadline)
    body = {
        "topics": [_creatable(topic) for topic in topics],
        "timeout_ms": client.options.request_timeout_ms,
        "validate_only": False,
    }

    def attempt() -> dict[str, UUID]:
        response = client.ask_anyone(CREATE_TOPICS, body, until)
        _raise_topic_errors(CREATE_TOPICS, response.topics)
        return {topic.name: topic.topic_id or NO_TOPIC_ID for topic in response.topics}

    return client.retried(until, attempt)


def _creatable(topic: NewTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": [],
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }


def delete_topics(client: Client, names: Sequence[str], deadline: Deadline | None = None) -> None:
    """Delete topics. The first that fails is raised; the others may have been deleted."""
    until = client.deadline(deadline)
    body = {
        "topics": [{"name": name, "topic_id": NO_TOPIC_ID} for name in names],
        "timeout_ms": client.options.request_timeout_ms,
    }
    client.retried(
        until, lambda: _raise_topic_errors(DELETE_TOPICS, client.ask_anyone(DELETE_TOPICS, body, until).responses)
    )


def create_partitions(client: Client, counts: Mapping[str, int], deadline: Deadline | None = None) -> None:
    """Grow topics to the given total numbers of partitions."""
    until = client.deadline(deadline)
    body = {
        "topics": [{"name": name, "count": count, "assignments": None} for name, count in counts.items()],
        "timeout_ms": client.options.request_timeout_ms,
        "validate_only": False,
    }
    client.retried(
        until,
        lambda: _raise_topic_errors(CREATE_PARTITIONS, client.ask_anyone(CREATE_PARTITIONS, body, until).results),
    )


def _raise_topic_errors(api: Api, results: Sequence[Any]) -> None:
    for result in results:
        if result.error_code:
            raise error_for(api.name, result.error_code, f"topic {result.name}", result.error_message)


def topic_configs(client: Client, topic: str, deadline: Deadline | None = None) -> dict[str, ConfigValue]:
    """All configuration values of a topic."""
    return _describe(client, ConfigOf.TOPIC, topic, deadline)


def broker_configs(client: Client, broker_id: int, deadline: Deadline | None = None) -> dict[str, ConfigValue]:
    """All configuration values of a broker; answered by that broker itself."""
    return _describe(client, ConfigOf.BROKER, str(broker_id), deadline)


def _describe(client: Client, kind: ConfigOf, name: str, deadline: Deadline | None) -> dict[str, ConfigValue]:
    until = client.deadline(deadline)
    resource = {"resource_type": int(kind), "resource_name": name, "configuration_keys": None}
    body = {"resources": [resource], "include_synonyms": False, "include_documentation": False}

    def attempt() -> dict[str, ConfigValue]:
        if kind is ConfigOf.TOPIC:
            response = client.ask_anyone(DESCRIBE_CONFIGS, body, until)
        else:
            response = client.ask(client.broker(int(name), until), DESCRIBE_CONFIGS, body, until)
        return read_configs(response, f"{kind.name.lower()} {name}")

    return client.retried(until, attempt)


def read_configs(response: Any, subject: str) -> dict[str, ConfigValue]:
    """Read a DescribeConfigs response for one resource."""
    result = response.results[0]
    if result.error_code:
        raise error_for(DESCRIBE_CONFIGS.name, result.error_code, subject, result.error_message)
    return {
        c.name: ConfigValue(c.value, c.config_source == _DEFAULT_SOURCE, bool(c.read_only), bool(c.is_sensitive))
        for c in result.configs
    }

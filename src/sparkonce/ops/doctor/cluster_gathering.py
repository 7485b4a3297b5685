"""Asks one cluster about its brokers, its topics and its clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparkonce.errors import SparkonceError
from sparkonce.fetch import Subscription
from sparkonce.ops.doctor.facts import ClusterFacts, TopicFacts
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client, ClusterMetadata, ConfigValue, Deadline, Topic, broker_configs, topic_configs
from sparkonce.wire.diagnosis import (
    Operation,
    SupportedFeatures,
    cluster_time_ms,
    supported_features,
    topic_operations,
)

UNKNOWN_TOPIC = 3
INTERNAL = ("__transaction_state", "__consumer_offsets")
BROKER_CONFIGS = (
    "transaction.max.timeout.ms",
    "transactional.id.expiration.ms",
    "offsets.retention.minutes",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "auto.create.topics.enable",
)
TOPIC_CONFIGS = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "max.message.bytes",
    "retention.ms",
    "cleanup.policy",
)
_BROKER_MS = 5_000
_NEW_TOPIC_MS = 2_000
_AGAIN_SECONDS = 0.25
_NOBODY = "no broker can be reached where it says it is"


def cluster_facts(
    options: ConnectionOptions,
    subscription: Subscription | None,
    roles: Mapping[str, str],
    clock: Callable[[], int],
) -> ClusterFacts:
    """All about one cluster; `roles` names topics that are written to."""
    servers = ",".join(options.bootstrap_servers)
    try:
        with Client(options) as client:
            return _facts(client, servers, subscription, roles, clock)
    except SparkonceError as error:
        return ClusterFacts(servers=servers, error=str(error))
    except Exception as error:  # whatever it is, the other questions must have their turn
        return ClusterFacts(servers=servers, error=f"{type(error).__name__}: {error}")


def _facts(
    client: Client,
    servers: str,
    subscription: Subscription | None,
    roles: Mapping[str, str],
    clock: Callable[[], int],
) -> ClusterFacts:
    metadata = _metadata(client, _topics_to_describe(subscription), roles)
    all_roles = _source_roles(subscription, metadata) | dict(roles)
    features, unreachable = _brokers(client, metadata)
    brokers = {broker: f"{a.host}:{a.port}" for broker, a in metadata.brokers.items()}
    if not features:
        # Every further question would only wait for an answer that does not come.
        return ClusterFacts(servers=servers, brokers=brokers, unreachable=unreachable, configs_error=_NOBODY)
    configs, configs_error = _broker_configs(client, min(features))
    levels = [f.supported["metadata.version"] for f in features.values() if "metadata.version" in f.supported]
    return ClusterFacts(
        servers=servers,
        brokers=brokers,
        unreachable=unreachable,
        software_level=min(levels, default=None),
        transaction_version=client.features().finalized.get("transaction.version", 0),
        configs=configs,
        configs_error=configs_error,
        topics=_topics(client, metadata, all_roles),
        skew_ms=_skew_ms(client, clock),
    )


def _metadata(client: Client, named: list[str] | None, roles: Mapping[str, str]) -> ClusterMetadata:
    """A topic that was just made is not known to every broker at once, so one that is missing is looked for again."""
    wanted = None if named is None else [*dict.fromkeys([*named, *roles, *INTERNAL])]
    until = Deadline.after_ms(_NEW_TOPIC_MS)
    while True:
        metadata = client.metadata(wanted)
        missing = [name for name in (*(named or ()), *roles) if name not in metadata.topics]
        if not missing or until.expired:
            return metadata
        client.connections.pause(_AGAIN_SECONDS)


def _topics_to_describe(subscription: Subscription | None) -> list[str] | None:
    if subscription is None:
        return []
    named = subscription.topics_to_describe
    return None if named is None else list(named)


def _source_roles(subscription: Subscription | None, metadata: ClusterMetadata) -> dict[str, str]:
    """The topics that are read: those named, whether they exist or not, and those that match."""
    if subscription is None:
        return {}
    named = subscription.topics_to_describe
    found = [topic.name for topic in metadata.topics.values() if subscription.includes(topic)]
    return dict.fromkeys([*(named or ()), *found], "source")


def _brokers(client: Client, metadata: ClusterMetadata) -> tuple[dict[int, SupportedFeatures], dict[int, str]]:
    """What each broker says about itself, and those that cannot be reached at the address they advertise."""
    found: dict[int, SupportedFeatures] = {}
    unreachable: dict[int, str] = {}
    for broker, address in metadata.brokers.items():
        try:
            found[broker] = supported_features(client, address, Deadline.after_ms(_BROKER_MS))
        except SparkonceError as error:
            unreachable[broker] = str(error)
    return found, unreachable


def _broker_configs(client: Client, broker: int) -> tuple[dict[str, str], str | None]:
    """Of one broker; they are meant to be the same on all."""
    try:
        return _chosen(broker_configs(client, broker), BROKER_CONFIGS), None
    except SparkonceError as error:
        return {}, str(error)


def _chosen(configs: Mapping[str, ConfigValue], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name in names if name in configs and (value := configs[name].value) is not None}


def _topics(client: Client, metadata: ClusterMetadata, roles: Mapping[str, str]) -> tuple[TopicFacts, ...]:
    allowed = topic_operations(client, list(roles)) if roles else {}
    found = []
    for name, role in roles.items():
        if name in metadata.topics:
            operations = allowed.get(name)
            may = operations if isinstance(operations, frozenset) else None
            found.append(_topic(client, metadata.topics[name], role, may))
        else:
            found.append(_absent(name, role, metadata.problems.get(name)))
    found += [_topic(client, metadata.topics[name], "internal", None) for name in INTERNAL if name in metadata.topics]
    return tuple(found)


def _absent(name: str, role: str, error: SparkonceError | None) -> TopicFacts:
    missing = error is None or (error.fault is not None and error.fault.code == UNKNOWN_TOPIC)
    return TopicFacts(name=name, role=role, missing=missing, error=None if error is None else str(error))


def _topic(client: Client, topic: Topic, role: str, allowed: frozenset[Operation] | None) -> TopicFacts:
    configs: dict[str, str] = {}
    configs_error = None
    try:
        configs = _chosen(topic_configs(client, topic.name), TOPIC_CONFIGS)
    except SparkonceError as error:
        configs_error = str(error)
    return TopicFacts(
        name=topic.name,
        role=role,
        partitions=len(topic.partitions),
        replicas=min((len(p.replicas) for p in topic.partitions), default=0),
        in_sync=min((len(p.in_sync) for p in topic.partitions), default=0),
        leaderless=tuple(p.index for p in topic.partitions if p.leader < 0),
        configs=configs,
        configs_error=configs_error,
        allowed=allowed,
    )


def _skew_ms(client: Client, clock: Callable[[], int]) -> int | None:
    before = clock()
    try:
        theirs = cluster_time_ms(client)
    except SparkonceError:
        return None
    after = clock()
    return None if theirs is None else theirs - (before + after) // 2

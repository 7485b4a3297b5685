"""Checks of topics: whether they exist, can be written, and keep what was written. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparkonce.ops.doctor.cluster_checks import clusters
from sparkonce.ops.doctor.commands import allow, alter_topic
from sparkonce.ops.doctor.facts import ClusterFacts, Facts, TopicFacts
from sparkonce.ops.doctor.findings import Finding, ok, problem, unknown, warning
from sparkonce.ops.tables import count, duration, listed
from sparkonce.wire.diagnosis import Operation

SHORT_RETENTION_MS = 3_600_000
WRITTEN = ("sink", "dead letters")


def user_topics(facts: Facts) -> list[tuple[ClusterFacts, TopicFacts]]:
    """The topics of the query, not Kafka's own."""
    return [(c, topic) for _, c in clusters(facts) for topic in c.topics if topic.role != "internal"]


def present(facts: Facts) -> list[tuple[ClusterFacts, TopicFacts]]:
    """Those that exist and may be seen."""
    return [(c, topic) for c, topic in user_topics(facts) if not topic.missing and topic.error is None]


def exist(facts: Facts) -> Iterator[Finding]:
    """Whether all topics are there."""
    for cluster, topic in user_topics(facts):
        if topic.missing:
            yield problem(
                "topics",
                f"the {topic.role} topic {topic.name} does not exist on {cluster.servers}",
                f"Correct its name, or make it: kafka-topics.sh --bootstrap-server {cluster.servers} --create --topic "
                f"{topic.name} --partitions 6 --replication-factor {min(3, len(cluster.brokers))}",
            )
        elif topic.error is not None:
            yield _unseen(topic, facts)
    found = [topic for _, topic in present(facts)]
    if found:
        texts = [f"{topic.name} ({topic.role}, {count(topic.partitions, 'partition')})" for topic in found]
        yield ok("topics", listed(texts, 10))
    elif facts.source.usable and not user_topics(facts):
        yield problem(
            "topics",
            f"no topic on {facts.source.servers} matches what the source reads",
            "Correct topic_pattern, or make such a topic; new ones are found while the query runs",
        )


def _unseen(topic: TopicFacts, facts: Facts) -> Finding:
    sink = facts.query.sink
    connection = sink.connection if topic.role == "sink" and sink is not None else facts.query.source.connection
    needed = [Operation.READ] if topic.role == "source" else [Operation.WRITE, Operation.READ]
    remedy = allow(connection, f"--topic {topic.name}", needed)
    return problem("topics", f"the {topic.role} topic {topic.name} cannot be seen: {topic.error}", remedy)


def leaders(facts: Facts) -> Iterator[Finding]:
    """Whether every partition can be used now."""
    for _, topic in present(facts):
        if topic.leaderless:
            named = listed([f"{topic.name}-{index}" for index in topic.leaderless])
            yield problem(
                "topics",
                f"no leader for {named}: nothing can be read or written there",
                "Start the brokers that hold them",
            )
        elif topic.in_sync < topic.replicas:
            yield warning(
                "replication",
                f"a partition of {topic.name} has {topic.in_sync} of {topic.replicas} copies in sync",
                "Look for brokers that are down or slow",
            )


def copies(facts: Facts) -> Iterator[Finding]:
    """How many copies there are."""
    for cluster, topic in present(facts):
        if topic.replicas != 1:
            continue
        more = "" if len(cluster.brokers) > 1 else " (the cluster has one broker: fine for tests)"
        yield warning(
            "replication",
            f"{topic.name} has one copy: a lost disk loses its records{more}",
            "Give it three copies with kafka-reassign-partitions.sh, or make it anew with --replication-factor 3",
        )


def in_sync(facts: Facts) -> Iterator[Finding]:
    """How many copies must have a record before it counts as written."""
    for cluster, topic in present(facts):
        text = topic.configs.get("min.insync.replicas")
        if text is None:
            yield unknown(
                "replication",
                f"the settings of {topic.name} could not be read: {topic.configs_error}",
                "Grant this client's principal DESCRIBE_CONFIGS on the topic",
            )
            continue
        yield from _in_sync_of(cluster, topic, int(text))


def _in_sync_of(cluster: ClusterFacts, topic: TopicFacts, needed: int) -> Iterator[Finding]:
    change = alter_topic(cluster.servers, topic.name, "min.insync.replicas", max(1, topic.replicas - 1))
    if needed > topic.replicas:
        yield problem(
            "replication",
            f"{topic.name} has min.insync.replicas={needed} and only {count(topic.replicas, 'copy', 'copies')}: every "
            f"write is refused",
            change,
        )
    elif needed > topic.in_sync:
        yield problem(
            "replication",
            f"{topic.name} has min.insync.replicas={needed}, and only {topic.in_sync} in sync now: every write is "
            f"refused",
            "Start the brokers that are down",
        )
    elif topic.replicas > 1 and needed == 1:
        yield warning(
            "replication",
            f"{topic.name} has min.insync.replicas=1: a record counts as written when one broker has it, and is lost "
            f"with that broker",
            change,
        )
    elif topic.replicas > 1 and needed == topic.replicas:
        yield warning(
            "replication",
            f"{topic.name} has min.insync.replicas={needed}, as many as copies: one broker down stops every write",
            change,
        )
    elif topic.replicas > 1:
        yield ok("replication", f"{topic.name}: {topic.replicas} copies, {needed} in sync to write")


def unclean_election(facts: Facts) -> Iterator[Finding]:
    """Whether a broker that missed records may become the leader."""
    for cluster, topic in present(facts):
        if topic.configs.get("unclean.leader.election.enable") == "true":
            yield problem(
                "replication",
                f"{topic.name} has unclean.leader.election.enable=true: committed records can be lost, and "
                f"exactly-once with them",
                alter_topic(cluster.servers, topic.name, "unclean.leader.election.enable", "false"),
            )


def batch_size(facts: Facts) -> Iterator[Finding]:
    """Whether the sink's record batches fit."""
    sink = facts.query.sink
    for _, topic in present(facts):
        text = topic.configs.get("max.message.bytes")
        if sink is None or topic.role not in WRITTEN or text is None:
            continue
        if int(text) < sink.batch_bytes:
            yield warning(
                "topics",
                f"{topic.name} takes record batches of {int(text):,} bytes, the sink makes them up to "
                f"{sink.batch_bytes:,}: a large one is refused, and the micro-batch fails",
                f"Set batch_bytes to {text} in the sink, or raise the topic's max.message.bytes",
            )


def short_lives(facts: Facts) -> Iterator[Finding]:
    """Whether records of the source are kept for as long as a query may be down."""
    for cluster, topic in present(facts):
        text = topic.configs.get("retention.ms")
        if topic.role != "source" or text is None or int(text) < 0:
            continue
        if int(text) < SHORT_RETENTION_MS and "delete" in topic.configs.get("cleanup.policy", "delete"):
            yield warning(
                "retention",
                f"{topic.name} keeps records for {duration(int(text))}: what is not read by then is lost, and the "
                f"query stops",
                alter_topic(cluster.servers, topic.name, "retention.ms", 604_800_000),
            )

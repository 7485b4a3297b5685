"""Checks of a cluster: its brokers, its versions, its limits, its clock. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparkonce.ops.doctor.facts import ClusterFacts, Facts
from sparkonce.ops.doctor.findings import Finding, ok, problem, unknown, warning
from sparkonce.ops.tables import count, duration, listed

VERSIONS = {14: "3.6", 19: "3.7", 20: "3.8", 21: "3.9", 25: "4.0", 27: "4.1", 29: "4.2", 30: "4.3"}
"""The last metadata.version level of each release."""
NEEDED_VERSION = 2
DAY_MS = 24 * 3_600_000
SKEW_WARNING_MS, SKEW_PROBLEM_MS = 10_000, 600_000


def clusters(facts: Facts) -> list[tuple[str, ClusterFacts]]:
    """Each cluster once, with its role."""
    if facts.sink is None:
        return [("source", facts.source)]
    if facts.sink == facts.source:
        return [("source and sink", facts.source)]
    return [("source", facts.source), ("sink", facts.sink)]


def reachable(facts: Facts) -> Iterator[Finding]:
    """Whether the clusters answer at all."""
    for role, cluster in clusters(facts):
        if cluster.error is not None:
            yield problem(
                "brokers",
                f"the cluster of the {role}, {cluster.servers}, cannot be used: {cluster.error}",
                "Correct bootstrap_servers and the `kafka` properties in the pipeline file, or start the brokers",
            )
        else:
            found = count(len(cluster.brokers), "broker")
            yield ok("brokers", f"{found} of the {role} at {cluster.servers}, Kafka {version_text(cluster)}")


def version_text(cluster: ClusterFacts) -> str:
    """The release that the oldest broker runs, as far as its features tell."""
    level = cluster.software_level
    if level is None:
        return "of unknown version (not KRaft)"
    at_least = [release for last, release in VERSIONS.items() if level <= last]
    return at_least[0] if at_least else f"{list(VERSIONS.values())[-1]} or later"


def advertised(facts: Facts) -> Iterator[Finding]:
    """Whether every broker can be reached where it says it is."""
    for _, cluster in clusters(facts):
        for broker, reason in cluster.unreachable.items():
            yield problem(
                "brokers",
                f"broker {broker} cannot be reached at the address that it advertises, {cluster.brokers[broker]}: "
                f"{reason}",
                "Start it, open the way to it, or correct its advertised.listeners",
            )


def transaction_version(facts: Facts) -> Iterator[Finding]:
    """Which transaction protocol the sink's cluster speaks."""
    cluster = facts.sink
    if cluster is None or not cluster.usable or facts.query.transactional_id is None:
        return
    if cluster.transaction_version >= NEEDED_VERSION:
        yield ok("transactions", f"transaction.version is {cluster.transaction_version}: the new protocol (KIP-890)")
        return
    yield warning(
        "transactions",
        f"transaction.version is {cluster.transaction_version}: the old protocol. It works and is just as exact, but "
        f"every transaction takes more requests",
        f"When all brokers are 4.0 or later: kafka-features.sh --bootstrap-server {cluster.servers} upgrade "
        f"--feature transaction.version=2",
    )


def transaction_timeout(facts: Facts) -> Iterator[Finding]:
    """The sink's timeout against the most that brokers allow."""
    cluster, sink = facts.sink, facts.query.sink
    if cluster is None or sink is None or not sink.exactly_once or not cluster.usable:
        return
    text = cluster.configs.get("transaction.max.timeout.ms")
    if text is None:
        yield _unreadable(cluster, "transaction.max.timeout.ms")
        return
    most, wanted = int(text), sink.transaction_timeout_ms
    if wanted > most:
        yield problem(
            "transactions",
            f"transaction_timeout_ms is {wanted:,}, the brokers allow {most:,} at most: transactions expire earlier "
            f"than you say, and cannot be given more time",
            f"Set transaction_timeout_ms to {most} in the sink, or raise transaction.max.timeout.ms on the brokers",
        )
    else:
        yield ok(
            "transactions", f"a transaction may be open for {duration(wanted)}, the brokers allow {duration(most)}"
        )


def _unreadable(cluster: ClusterFacts, name: str) -> Finding:
    return unknown(
        "limits",
        f"{name} could not be read: {cluster.configs_error or 'the broker does not name it'}",
        "Grant this client's principal DESCRIBE_CONFIGS on the cluster; Kafka's default is assumed until then",
    )


def retention(facts: Facts) -> Iterator[Finding]:
    """How long markers live: they say whether the last micro-batch is committed."""
    cluster = facts.sink
    if cluster is None or not cluster.usable or facts.query.transactional_id is None:
        return
    text = cluster.configs.get("offsets.retention.minutes")
    if text is None:
        yield _unreadable(cluster, "offsets.retention.minutes")
        return
    life_ms = int(text) * 60_000
    if life_ms < DAY_MS:
        yield warning(
            "retention",
            f"the brokers forget the marker of the last micro-batch after {duration(life_ms)} "
            f"(offsets.retention.minutes={text}): a query that is down for longer in the middle of a micro-batch "
            f"cannot know whether it is committed, and stops",
            "Set offsets.retention.minutes to 10080 (seven days) on the brokers",
        )
    else:
        yield ok("retention", f"the brokers keep markers for {duration(life_ms)}")


def id_expiration(facts: Facts) -> Iterator[Finding]:
    """How long an idle transactional id is remembered."""
    cluster, sink = facts.sink, facts.query.sink
    if cluster is None or sink is None or not sink.exactly_once:
        return
    text = cluster.configs.get("transactional.id.expiration.ms")
    if text is None:
        return
    if int(text) <= sink.transaction_timeout_ms:
        yield problem(
            "retention",
            f"the brokers forget an idle transactional id after {duration(int(text))} "
            f"(transactional.id.expiration.ms), which is not longer than a transaction may take",
            "Set transactional.id.expiration.ms to 604800000 (seven days) on the brokers",
        )
    elif int(text) < DAY_MS:
        yield warning(
            "retention",
            f"the brokers forget an idle transactional id after {duration(int(text))} "
            f"(transactional.id.expiration.ms): a driver that was replaced can no longer be told from a new one then",
            "Set transactional.id.expiration.ms to 604800000 (seven days) on the brokers",
        )


def clocks(facts: Facts) -> Iterator[Finding]:
    """The cluster's clock against ours: the age of a planned micro-batch is compared with the life of markers."""
    for role, cluster in clusters(facts):
        skew = cluster.skew_ms
        if not cluster.usable:
            continue
        if skew is None:
            yield unknown(
                "clocks", f"the clock of the {role}'s cluster could not be read (it needs DESCRIBE on the cluster)"
            )
        elif abs(skew) < SKEW_WARNING_MS:
            yield ok("clocks", f"the clocks of the {role} and of this machine agree within {duration(abs(skew))}")
        else:
            level = problem if abs(skew) >= SKEW_PROBLEM_MS else warning
            word = "ahead of" if skew > 0 else "behind"
            yield level(
                "clocks",
                f"the cluster of the {role} is {duration(abs(skew))} {word} this machine: ages and times are wrong by "
                f"that much",
                "Set the clocks by NTP, on the brokers and here",
            )


def state_log(facts: Facts) -> Iterator[Finding]:
    """Whether Kafka's own topic of transactions is kept safely, and can be written."""
    cluster = facts.sink
    if cluster is None or not cluster.usable or facts.query.transactional_id is None:
        return
    brokers, least = len(cluster.brokers), cluster.configs.get("transaction.state.log.min.isr")
    if least is not None and int(least) > brokers:
        yield problem(
            "transactions",
            f"transaction.state.log.min.isr is {least}, but there are only {count(brokers, 'broker')}: no transaction "
            f"can begin",
            f"Set transaction.state.log.min.isr to {max(1, brokers - 1)}, or add brokers",
        )
    for topic in cluster.topics:
        if topic.role == "internal" and topic.leaderless:
            yield problem(
                "transactions",
                f"{topic.name} has no leader for {listed([f'partition {index}' for index in topic.leaderless])}: "
                f"transactional ids and groups that are kept there cannot be used",
                "Start the brokers that hold it",
            )
        elif topic.role == "internal" and topic.replicas == 1 and brokers > 1:
            yield warning(
                "transactions",
                f"{topic.name} has one copy: with its broker, transactions and markers are lost",
                "Give it three copies with kafka-reassign-partitions.sh",
            )

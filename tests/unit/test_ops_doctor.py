"""Each check of the doctor over facts that have exactly one thing wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
import pytest

from sparkonce.cli.doctor import findings_record, findings_text
from sparkonce.fetch import TopicNames
from sparkonce.fetch.checkpoint import Checkpoint, LoggedBatch
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.ops import KafkaSinkTarget, Query, SourceTarget
from sparkonce.ops.doctor import Finding, Verdict, examine
from sparkonce.ops.doctor.cluster_checks import VERSIONS, version_text
from sparkonce.ops.doctor.facts import (
    ClusterFacts,
    Facts,
    GroupFacts,
    IdFacts,
    MachineFacts,
    SourcePositions,
    StoreFacts,
    TopicFacts,
)
from sparkonce.ops.owners import Claim
from sparkonce.ops.tables import WIDTH
from sparkonce.ops.transactions import KnownTransaction
from sparkonce.options import ConnectionOptions
from sparkonce.transaction import Marker, Owner
from sparkonce.wire import TransactionDescription
from sparkonce.wire.diagnosis import Operation

NOW = 1_800_000_000_000
HERE = ConnectionOptions(bootstrap_servers="here:9092")
A0 = TopicPartition("orders", 0)
ALL = frozenset(Operation)
SAFE = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "max.message.bytes": "1048588",
    "retention.ms": "604800000",
    "cleanup.policy": "delete",
}
LIMITS = {
    "transaction.max.timeout.ms": "900000",
    "offsets.retention.minutes": "10080",
    "transactional.id.expiration.ms": "604800000",
    "transaction.state.log.min.isr": "2",
}
OWNER = Owner("host-a", 4711, "q-1")
GOLDEN = Path(__file__).parents[1] / "data" / "doctor"


def topic(name: str, role: str, **more: Any) -> TopicFacts:
    good = TopicFacts(name=name, role=role, partitions=4, replicas=3, in_sync=3, configs=SAFE, allowed=ALL)
    return replace(good, **more)


def cluster(**more: Any) -> ClusterFacts:
    good = ClusterFacts(
        servers="here:9092",
        brokers={1: "b1:9092", 2: "b2:9092", 3: "b3:9092"},
        software_level=30,
        transaction_version=2,
        configs=LIMITS,
        topics=(topic("orders", "source"), topic("big-orders", "sink"), topic("__transaction_state", "internal")),
        skew_ms=12,
    )
    return replace(good, **more)


def batch(number: int, planned_ms: int = NOW - 1_000) -> LoggedBatch:
    return LoggedBatch(number, planned_ms, (f"offsets-{number}",), "")


def known(
    state: str = "Empty", open_ms: int | None = None, marker: Marker | None = None, **more: Any
) -> KnownTransaction:
    started = -1 if open_ms is None else NOW - open_ms
    claim = replace(Claim(OWNER, marker or marker_of(5), A0), **more)
    return KnownTransaction(TransactionDescription("big", state, 12, 4, 60_000, started, (A0,)), claim)


def marker_of(number: int, query_id: str = "q-1", digest: str | None = None) -> Marker:
    return Marker(number, Owner("host-a", 4711, query_id), ProducerIdentity(12, 3), digest or batch(number).digest)


def healthy() -> Facts:
    query = Query(
        name="big-orders",
        checkpoint="/checkpoints/big",
        source=SourceTarget(connection=HERE, subscription=TopicNames(("orders",))),
        sink=KafkaSinkTarget(
            connection=HERE,
            topic="big-orders",
            transactional_id="big",
            transaction_timeout_ms=60_000,
            batch_bytes=1_048_588,
        ),
    )
    return Facts(
        query=query,
        now_ms=NOW,
        source=cluster(),
        sink=cluster(),
        groups=(GroupFacts(name="sparkonce.big", what="the marker's", allowed=ALL),),
        transactional_id=IdFacts(name="big", known=known(), may_write=True),
        checkpoint=Checkpoint(Path("/checkpoints/big"), "q-1", batch(5), batch(5)),
        positions=SourcePositions(next_start={A0: 40}, earliest={A0: 0}, latest={A0: 50}),
        stores=(StoreFacts(name="postgres shop orders", prepares=True),),
        machine=MachineFacts(python=(3, 12, 1), java="21.0.2 (PATH)", pyspark="4.2.0"),
    )


def with_cluster(**more: Any) -> Facts:
    changed = cluster(**more)
    return replace(healthy(), source=changed, sink=changed)


def with_topic(role: str, **more: Any) -> Facts:
    topics = tuple(replace(one, **more) if one.role == role else one for one in cluster().topics)
    return with_cluster(topics=topics)


def with_config(name: str, value: str) -> Facts:
    return with_cluster(configs=LIMITS | {name: value})


def with_topic_config(name: str, value: str, role: str = "sink") -> Facts:
    return with_topic(role, configs=SAFE | {name: value})


def with_id(**more: Any) -> Facts:
    return replace(healthy(), transactional_id=replace(IdFacts(name="big", known=known(), may_write=True), **more))


def with_checkpoint(planned: LoggedBatch | None, committed: LoggedBatch | None, **more: Any) -> Facts:
    return replace(with_id(**more), checkpoint=Checkpoint(Path("/checkpoints/big"), "q-1", planned, committed))


def with_machine(**more: Any) -> Facts:
    return replace(healthy(), machine=replace(healthy().machine, **more))


CASES: dict[str, tuple[Callable[[], Facts], Verdict, str, str]] = {
    "unreachable": (
        lambda: with_cluster(error="connection refused"),
        Verdict.PROBLEM,
        "the cluster of the source and sink, here:9092, cannot be used: connection refused",
        "bootstrap_servers",
    ),
    "advertised": (
        lambda: with_cluster(unreachable={2: "no route"}),
        Verdict.PROBLEM,
        "broker 2 cannot be reached at the address that it advertises, b2:9092: no route",
        "advertised.listeners",
    ),
    "missing topic": (
        lambda: with_topic("sink", missing=True),
        Verdict.PROBLEM,
        "the sink topic big-orders does not exist on here:9092",
        "--create --topic big-orders --partitions 6 --replication-factor 3",
    ),
    "topic denied": (
        lambda: with_topic("source", error="denied"),
        Verdict.PROBLEM,
        "the source topic orders cannot be seen: denied",
        "",
    ),
    "no match": (lambda: with_cluster(topics=()), Verdict.PROBLEM, "no topic on here:9092 matches", "topic_pattern"),
    "no leader": (
        lambda: with_topic("source", leaderless=(3,)),
        Verdict.PROBLEM,
        "no leader for orders-3",
        "Start the brokers",
    ),
    "under-replicated": (
        lambda: with_topic("source", in_sync=2),
        Verdict.WARNING,
        "has 2 of 3 copies in sync",
        "down or slow",
    ),
    "one copy": (
        lambda: with_topic("sink", replicas=1, in_sync=1, configs=SAFE | {"min.insync.replicas": "1"}),
        Verdict.WARNING,
        "big-orders has one copy",
        "kafka-reassign-partitions.sh",
    ),
    "min isr above copies": (
        lambda: with_topic_config("min.insync.replicas", "4"),
        Verdict.PROBLEM,
        "min.insync.replicas=4 and only 3 copies: every write is refused",
        "--add-config min.insync.replicas=2",
    ),
    "min isr not met": (
        lambda: with_topic("sink", in_sync=1),
        Verdict.PROBLEM,
        "min.insync.replicas=2, and only 1 in sync now",
        "Start the brokers",
    ),
    "min isr one": (
        lambda: with_topic_config("min.insync.replicas", "1"),
        Verdict.WARNING,
        "min.insync.replicas=1: a record counts as written when one broker has it",
        "--add-config min.insync.replicas=2",
    ),
    "min isr all": (
        lambda: with_topic_config("min.insync.replicas", "3"),
        Verdict.WARNING,
        "as many as copies: one broker down stops every write",
        "--add-config min.insync.replicas=2",
    ),
    "settings unreadable": (
        lambda: with_topic("sink", configs={}, configs_error="denied"),
        Verdict.UNKNOWN,
        "the settings of big-orders could not be read: denied",
        "DESCRIBE_CONFIGS",
    ),
    "unclean election": (
        lambda: with_topic_config("unclean.leader.election.enable", "true"),
        Verdict.PROBLEM,
        "unclean.leader.election.enable=true: committed records can be lost",
        "unclean.leader.election.enable=false",
    ),
    "batch size": (
        lambda: with_topic_config("max.message.bytes", "1000"),
        Verdict.WARNING,
        "takes record batches of 1,000 bytes, the sink makes them up to 1,048,588",
        "batch_bytes",
    ),
    "old protocol": (
        lambda: with_cluster(transaction_version=1),
        Verdict.WARNING,
        "transaction.version is 1: the old protocol",
        "upgrade --feature transaction.version=2",
    ),
    "timeout": (
        lambda: with_config("transaction.max.timeout.ms", "10000"),
        Verdict.PROBLEM,
        "transaction_timeout_ms is 60,000, the brokers allow 10,000 at most",
        "Set transaction_timeout_ms to 10000",
    ),
    "limits unreadable": (
        lambda: with_cluster(configs={}, configs_error="denied"),
        Verdict.UNKNOWN,
        "transaction.max.timeout.ms could not be read: denied",
        "DESCRIBE_CONFIGS on the cluster",
    ),
    "state log": (
        lambda: with_config("transaction.state.log.min.isr", "4"),
        Verdict.PROBLEM,
        "transaction.state.log.min.isr is 4, but there are only 3 brokers",
        "Set transaction.state.log.min.isr to 2",
    ),
    "state log copies": (
        lambda: with_topic("internal", replicas=1),
        Verdict.WARNING,
        "__transaction_state has one copy",
        "three copies",
    ),
    "state log leader": (
        lambda: with_topic("internal", leaderless=(7,)),
        Verdict.PROBLEM,
        "__transaction_state has no leader for partition 7",
        "Start the brokers",
    ),
    "marker retention": (
        lambda: with_config("offsets.retention.minutes", "60"),
        Verdict.WARNING,
        "forget the marker of the last micro-batch after 1 h",
        "offsets.retention.minutes to 10080",
    ),
    "id expiration short": (
        lambda: with_config("transactional.id.expiration.ms", "3600000"),
        Verdict.WARNING,
        "forget an idle transactional id after 1 h",
        "604800000",
    ),
    "id expiration too short": (
        lambda: with_config("transactional.id.expiration.ms", "30000"),
        Verdict.PROBLEM,
        "not longer than a transaction may take",
        "604800000",
    ),
    "source retention": (
        lambda: with_topic_config("retention.ms", "60000", "source"),
        Verdict.WARNING,
        "orders keeps records for 1 min",
        "retention.ms=604800000",
    ),
    "read denied": (
        lambda: with_topic("source", allowed=ALL - {Operation.READ}),
        Verdict.PROBLEM,
        "this client may not read the source topic orders",
        "--operation Read --topic orders",
    ),
    "marker's topic": (
        lambda: with_topic("sink", allowed=ALL - {Operation.READ}),
        Verdict.PROBLEM,
        "may not read the sink topic big-orders (the marker of a micro-batch is an offset of it",
        "--operation Read --topic big-orders",
    ),
    "group denied": (
        lambda: replace(healthy(), groups=(GroupFacts(name="g", what="the marker's", error="denied"),)),
        Verdict.PROBLEM,
        "the marker's group g cannot be used: denied",
        "--operation Read --group g",
    ),
    "group not readable": (
        lambda: replace(
            healthy(), groups=(GroupFacts(name="g", what="the owner's", allowed=frozenset({Operation.DESCRIBE})),)
        ),
        Verdict.PROBLEM,
        "this client may not read the owner's group g",
        "--operation Read --group g",
    ),
    "id denied": (
        lambda: with_id(may_write=False),
        Verdict.PROBLEM,
        "this client may not run transactions under the id big",
        "--operation Write --operation Describe --transactional-id big",
    ),
    "id unknown": (
        lambda: with_id(may_write=None, write_error="no answer"),
        Verdict.UNKNOWN,
        "whether the id big may be used is not known: no answer",
        "",
    ),
    "open transaction": (
        lambda: with_id(known=known("Ongoing", 5_000)),
        Verdict.WARNING,
        "open under big for 5 s: process 4711 on host-a, query q-1 runs the query now",
        "would be fenced",
    ),
    "hanging": (
        lambda: with_id(known=known("Ongoing", 3_600_000)),
        Verdict.PROBLEM,
        "is open for 1 h, longer than its timeout",
        "sparkonce transactions abort big",
    ),
    "owner alive": (
        lambda: with_id(owner_lives_here=True),
        Verdict.WARNING,
        "process 4711 on host-a, query q-1 claimed big last, and is alive on this host",
        "would be fenced",
    ),
    "members": (
        lambda: replace(healthy(), groups=(GroupFacts(name="g", what="offsets_group", has_members=True),)),
        Verdict.PROBLEM,
        "offsets_group group g has members",
        "another group.id",
    ),
    "foreign marker": (
        lambda: with_id(known=known(problem="group sparkonce.big holds offsets that sparkonce did not write")),
        Verdict.PROBLEM,
        "holds offsets that sparkonce did not write",
        "transactional_id of its own",
    ),
    "another query": (
        lambda: with_id(known=known(marker=marker_of(5, "q-2"))),
        Verdict.PROBLEM,
        "two queries share the id, or the checkpoint was copied",
        "transactional_id of its own",
    ),
    "old checkpoint": (
        lambda: with_id(known=known(marker=marker_of(9))),
        Verdict.PROBLEM,
        "Kafka has batch 9, the checkpoint knows only up to 5",
        "Restore the newest checkpoint",
    ),
    "other offsets": (
        lambda: with_id(known=known(marker=marker_of(5, digest="other"))),
        Verdict.PROBLEM,
        "Kafka has batch 5 with other offsets than the checkpoint",
        "Restore the newest checkpoint",
    ),
    "new checkpoint, old id": (
        lambda: with_checkpoint(None, None),
        Verdict.WARNING,
        "has no micro-batch yet, but the transactional id has committed batch 5 of query q-1",
        "give it the checkpoint that it had",
    ),
    "marker forgotten": (
        lambda: with_checkpoint(batch(6, NOW - 30 * 86_400_000), batch(5), known=None),
        Verdict.PROBLEM,
        "batch 6 was planned 30 d ago and is not committed, and Kafka keeps markers for 7 d",
        "sparkonce recover FILE --assume committed",
    ),
    "checkpoint elsewhere": (
        lambda: replace(healthy(), checkpoint=None, checkpoint_error="s3: only Spark can read it"),
        Verdict.UNKNOWN,
        "s3: only Spark can read it",
        "",
    ),
    "records deleted": (
        lambda: replace(healthy(), positions=SourcePositions(next_start={A0: 40}, earliest={A0: 45}, latest={A0: 50})),
        Verdict.PROBLEM,
        "5 offsets of orders-0 were deleted before they were read",
        "fail_on_data_loss = false",
    ),
    "log cut": (
        lambda: replace(healthy(), positions=SourcePositions(next_start={A0: 40}, earliest={A0: 0}, latest={A0: 30})),
        Verdict.PROBLEM,
        "the logs of orders-0 end before what was read",
        "unclean leader election",
    ),
    "topic made anew": (
        lambda: replace(
            healthy(),
            positions=SourcePositions(next_start={A0: 40}, topic_ids={"orders": "b"}, known_ids={"orders": "a"}),
        ),
        Verdict.PROBLEM,
        "orders: deleted and made anew since it was last read",
        "new checkpoint",
    ),
    "not prepared": (
        lambda: replace(healthy(), stores=(StoreFacts(name="postgres s t", prepares=True, error="are switched off"),)),
        Verdict.PROBLEM,
        "postgres s t: are switched off",
        "",
    ),
    "leftovers": (
        lambda: replace(healthy(), stores=(StoreFacts(name="postgres s t", prepares=True, leftovers=("x/y",)),)),
        Verdict.WARNING,
        "postgres s t has 1 branch in doubt (x/y): their rows stay locked",
        "Do not end them by hand",
    ),
    "clock": (
        lambda: with_cluster(skew_ms=-30_000),
        Verdict.WARNING,
        "is 30 s behind this machine",
        "NTP",
    ),
    "clock far": (lambda: with_cluster(skew_ms=3_600_000), Verdict.PROBLEM, "is 1 h ahead of this machine", "NTP"),
    "clock unknown": (lambda: with_cluster(skew_ms=None), Verdict.UNKNOWN, "could not be read", ""),
    "java": (
        lambda: with_machine(java=None, java_error="No Java 17"),
        Verdict.PROBLEM,
        "No Java 17",
        "sparkonce[java]",
    ),
    "python": (lambda: with_machine(python=(3, 9, 1)), Verdict.PROBLEM, "Python 3.9.1 is too old", "3.11"),
    "workers' python": (
        lambda: with_machine(worker_python="3.10.4"),
        Verdict.PROBLEM,
        "the workers run Python 3.10.4 (PYSPARK_PYTHON), the driver 3.12.1",
        "PYSPARK_PYTHON",
    ),
    "pyspark": (lambda: with_machine(pyspark="3.5.1"), Verdict.PROBLEM, "pyspark is 3.5.1", "pyspark>=4.2"),
    "workers": (
        lambda: replace(healthy(), query=replace(healthy().query, master="spark://m:7077")),
        Verdict.UNKNOWN,
        "the workers of spark://m:7077",
        "sparkonce submit",
    ),
}


def worse(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.verdict is not Verdict.OK]


def test_a_healthy_query_has_nothing_to_say() -> None:
    findings = examine(healthy())
    assert worse(findings) == []
    assert click.unstyle(findings_text(findings)) == dedent("""\
        ok       brokers       3 brokers of the source and sink at here:9092, Kafka 4.3
        ok       topics        orders (source, 4 partitions), big-orders (sink, 4 partitions)
        ok       replication   orders: 3 copies, 2 in sync to write
        ok       replication   big-orders: 3 copies, 2 in sync to write
        ok       transactions  transaction.version is 2: the new protocol (KIP-890)
        ok       transactions  a transaction may be open for 1 min, the brokers allow 15 min
        ok       retention     the brokers keep markers for 7 d
        ok       permissions   the topics may be read and written as needed
        ok       permissions   the groups may be used: sparkonce.big
        ok       permissions   transactions may be run under the id big
        ok       owner         no transaction is open under big; last used by process 4711 on host-a, query
                               q-1
        ok       checkpoint    committed is batch 5; Kafka has batch 5
        ok       records       everything that is to be read is there; 10 offsets are waiting
        ok       stores        postgres shop orders can prepare transactions, and has none in doubt
        ok       clocks        the clocks of the source and sink and of this machine agree within 12 ms
        ok       machine       Java 21.0.2 (PATH)
        ok       machine       Python 3.12.1
        ok       machine       pyspark 4.2.0

        0 problems, 0 warnings, 18 ok.""")


@pytest.mark.parametrize("name", CASES)
def test_one_thing_wrong_is_one_finding(name: str) -> None:
    make, verdict, message, remedy = CASES[name]
    found = [finding for finding in worse(examine(make())) if message in finding.message]
    assert [finding.verdict for finding in found] == [verdict], worse(examine(make()))
    assert remedy in found[0].remedy
    assert found[0].remedy or verdict is Verdict.UNKNOWN
    text = click.unstyle(findings_text(found))
    # A word is never cut, so that addresses and options can be copied.
    assert all(len(line) <= WIDTH or " " not in line.strip(" →") for line in text.splitlines())
    record = findings_record(found)
    assert record["ok"] is (verdict is not Verdict.PROBLEM)


def test_every_wrong_thing_has_a_message_of_its_own() -> None:
    messages = [message for _, _, message, _ in CASES.values()]
    assert len(set(messages)) == len(messages) > 40


def test_batches_on_their_way_are_no_problem() -> None:
    for facts in (
        with_checkpoint(batch(6), batch(5)),
        with_checkpoint(batch(6), batch(5), known=known(marker=marker_of(6))),
        with_checkpoint(batch(0), None, known=None),
        with_checkpoint(None, None, known=None),
    ):
        assert worse(examine(facts)) == []


def test_one_broken_check_does_not_stop_the_others() -> None:
    def broken(_facts: Facts) -> Iterator[Finding]:
        raise RuntimeError("on purpose")

    def fine(_facts: Facts) -> list[Finding]:
        return [Finding(Verdict.OK, "x", "fine")]

    findings = examine(healthy(), [broken, fine])
    assert [finding.verdict for finding in findings] == [Verdict.UNKNOWN, Verdict.OK]
    assert "test_ops_doctor.broken failed: RuntimeError: on purpose" in findings[0].message


@pytest.mark.parametrize(("level", "text"), [(14, "3.6"), (15, "3.7"), (25, "4.0"), (30, "4.3"), (99, "4.3 or later")])
def test_versions(level: int, text: str) -> None:
    assert version_text(cluster(software_level=level)) == text
    assert list(VERSIONS) == sorted(VERSIONS)


def golden(name: str) -> Path:
    return GOLDEN / f"{name.replace(' ', '-').replace(',', '').replace(chr(39), '')}.expected"


@pytest.mark.parametrize("name", CASES)
def test_the_text_of_each_is_as_it_was_read_by_a_person(name: str) -> None:
    """To renew one after a change of words: delete its file, run the test twice, and read what it wrote."""
    text = click.unstyle(findings_text(worse(examine(CASES[name][0]())))) + "\n"
    if not golden(name).exists():
        golden(name).write_text(text)
        pytest.fail(f"{golden(name)} was written; read it")
    assert text == golden(name).read_text()


def test_no_text_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {golden(name).name for name in CASES}

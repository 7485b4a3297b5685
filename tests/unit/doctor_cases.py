"""Facts with exactly one thing wrong, and what the doctor says of each: verdict, message, remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparkonce.ops.doctor import Verdict
from sparkonce.ops.doctor.facts import (
    Facts,
    GroupFacts,
    SourcePositions,
    StoreFacts,
)
from sparkonce.wire.diagnosis import Operation
from tests.unit.doctor_samples import (
    A0,
    ALL,
    NOW,
    SAFE,
    batch,
    healthy,
    known,
    marker_of,
    with_checkpoint,
    with_cluster,
    with_config,
    with_id,
    with_machine,
    with_topic,
    with_topic_config,
)

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

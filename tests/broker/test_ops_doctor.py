"""`sparkonce doctor` finds its problems on brokers, databases and checkpoints that really have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka import admin as confluent_admin

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import QUICK_JVM, DevBroker
from sparkonce.devbroker.ports import free_ports
from sparkonce.model import TopicPartition
from sparkonce.ops import Query
from sparkonce.ops.doctor import Verdict
from sparkonce.ops.transactions import now_ms
from sparkonce.wire import (
    GroupOffset,
    NewTopic,
    commit_offsets,
    create_topics,
    delete_topics,
    describe_transaction,
    init_producer,
)
from tests.broker.ops_samples import fill, findings, problems, query_on, run, said, write_log, write_pipeline
from tests.broker.transaction_samples import driver, new_id
from tests.broker.wire_samples import client_of
from tests.conftest import TopicFactory, create_topic

QUERY = "query-of-host-a"


def on(broker: DevBroker, folder: Path, **more: Any) -> Query:
    """A query with two topics of its own."""
    source, sink = create_topic(broker, name="in"), create_topic(broker, name="out")
    return query_on(broker.bootstrap_servers, source, sink, new_id(), folder / "checkpoint", **more)


# What is well.


def test_a_new_query_on_a_healthy_cluster(cluster3: DevBroker, tmp_path: Path) -> None:
    query = on(cluster3, tmp_path)
    found = findings(query)
    assert [one for one in found if one.verdict is not Verdict.OK] == []
    said(found, Verdict.OK, "3 brokers of the source and sink", "Kafka 4.3")
    said(found, Verdict.OK, "transaction.version is 2")
    said(found, Verdict.OK, "the clocks", "agree")
    said(found, Verdict.OK, "transactions may be run under the id")
    with client_of(cluster3) as client, pytest.raises(Exception, match="TRANSACTIONAL_ID_NOT_FOUND"):
        describe_transaction(client, str(query.transactional_id))


def test_the_command(broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, broker.bootstrap_servers, topic(broker), topic(broker), new_id())
    answer = run("doctor", file)
    assert answer.exit_code == 0, answer.output
    assert "has one copy: a lost disk loses its records (the cluster has one broker: fine for tests)" in " ".join(
        answer.output.split()
    )
    assert "0 problems, 2 warnings" in answer.output
    file = write_pipeline(tmp_path, broker.bootstrap_servers, topic(broker), "nowhere", new_id())
    answer = run("doctor", file, "--json")
    assert answer.exit_code == 1
    record = json.loads(answer.stdout)
    assert record["ok"] is False
    assert ["nowhere" in one["message"] for one in record["findings"] if one["verdict"] == "problem"] == [True]


# Brokers.


def test_nobody_is_there(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    query = query_on(f"127.0.0.1:{port}", "a", "b", "c", tmp_path / "checkpoint")
    found = findings(query)
    said(found, Verdict.PROBLEM, f"127.0.0.1:{port}, cannot be used", "no bootstrap server could be used")
    said(found, Verdict.OK, "Java")


def test_a_broker_that_advertises_a_wrong_address(tmp_path: Path) -> None:
    plain, controller, other, wrong = free_ports(4)
    listeners = {"PLAINTEXT": plain, "CONTROLLER": controller, "OTHER": other}
    properties = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},OTHER://127.0.0.1:{wrong}",
        "controller.quorum.voters": f"0@127.0.0.1:{controller}",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
    }
    with DevBroker(port=plain, properties=properties, jvm_options=QUICK_JVM) as started:
        source, sink = create_topic(started), create_topic(started)
        found = findings(query_on(f"127.0.0.1:{other}", source, sink, new_id(), tmp_path / "checkpoint"))
    advice = said(
        found, Verdict.PROBLEM, f"broker 0 cannot be reached at the address that it advertises, 127.0.0.1:{wrong}"
    )
    assert "advertised.listeners" in advice.remedy


def test_one_of_three_brokers_is_down(tmp_path: Path) -> None:
    with DevBroker(brokers=3, jvm_options=QUICK_JVM) as cluster:
        query = on(cluster, tmp_path)
        cluster.kill(2)
        assert wait_until(
            lambda: any("2 of 3 copies in sync" in one.message for one in findings(query)), Deadline.after(60)
        )
        found = findings(query)
        assert len([one for one in found if "has 2 of 3 copies in sync" in one.message]) == 2


@pytest.fixture(scope="module")
def sloppy() -> Iterator[DevBroker]:
    """One broker with everything set wrong that can be set on a broker."""
    properties = {
        "transaction.max.timeout.ms": "20000",
        "transactional.id.expiration.ms": "30000",
        "offsets.retention.minutes": "10",
        "unclean.leader.election.enable": "true",
        "log.retention.ms": "60000",
        "message.max.bytes": "10000",
    }
    with DevBroker(transaction_version=1, properties=properties, jvm_options=QUICK_JVM) as started:
        yield started


@pytest.mark.parametrize(
    ("verdict", "message", "remedy"),
    [
        (Verdict.PROBLEM, "transaction_timeout_ms is 60,000, the brokers allow 20,000", "to 20000 in the sink"),
        (Verdict.PROBLEM, "forget an idle transactional id after 30 s", "transactional.id.expiration.ms to 604800000"),
        (Verdict.WARNING, "forget the marker of the last micro-batch after 10 min", "offsets.retention.minutes"),
        (Verdict.WARNING, "transaction.version is 1: the old protocol", "--feature transaction.version=2"),
        (Verdict.WARNING, "takes record batches of 10,000 bytes", "batch_bytes"),
        (Verdict.WARNING, "keeps records for 1 min", "retention.ms"),
    ],
)
def test_a_sloppy_broker(sloppy: DevBroker, tmp_path: Path, verdict: Verdict, message: str, remedy: str) -> None:
    found = findings(on(sloppy, tmp_path))
    assert remedy in said(found, verdict, message).remedy
    unclean = [one for one in found if "unclean.leader.election.enable=true" in one.message]
    assert [one.verdict for one in unclean] == [Verdict.PROBLEM, Verdict.PROBLEM]


def test_a_clock_that_is_wrong(broker: DevBroker, tmp_path: Path) -> None:
    found = findings(on(broker, tmp_path), clock=lambda: now_ms() - 3_630_000)
    said(found, Verdict.PROBLEM, "is 1 h", "ahead of this machine")
    found = findings(on(broker, tmp_path), clock=lambda: now_ms() + 60_000)
    said(found, Verdict.WARNING, "behind this machine")


# Topics.


def test_topics_that_do_not_exist(broker: DevBroker, tmp_path: Path) -> None:
    query = query_on(broker.bootstrap_servers, "no-input", "no-output", new_id(), tmp_path / "checkpoint")
    found = findings(query)
    assert "--create --topic no-input" in said(found, Verdict.PROBLEM, "the source topic no-input").remedy
    assert "--create --topic no-output" in said(found, Verdict.PROBLEM, "the sink topic no-output").remedy


@pytest.mark.parametrize(
    ("copies", "least", "verdict", "message"),
    [
        (3, 1, Verdict.WARNING, "min.insync.replicas=1: a record counts as written when one broker has it"),
        (3, 3, Verdict.WARNING, "min.insync.replicas=3, as many as copies"),
        (1, 1, Verdict.WARNING, "has one copy"),
        (2, 3, Verdict.PROBLEM, "min.insync.replicas=3 and only 2 copies"),
    ],
)
def test_copies(
    cluster3: DevBroker, topic: TopicFactory, tmp_path: Path, copies: int, least: int, verdict: Verdict, message: str
) -> None:
    sink = f"sink-{new_id()}"
    with client_of(cluster3) as client:
        create_topics(client, [NewTopic(sink, 2, copies, {"min.insync.replicas": str(least)})])
    query = query_on(cluster3.bootstrap_servers, topic(cluster3), sink, new_id(), tmp_path / "checkpoint")
    said(findings(query), verdict, sink, message)


# Who runs it, and what it has done.


def test_an_open_transaction(broker: DevBroker, tmp_path: Path) -> None:
    query = on(broker, tmp_path)
    assert query.sink is not None
    home = TopicPartition(str(query.sink.topic), 0)
    with driver(broker, str(query.transactional_id), home) as one:
        one.transaction.claim(60_000)
        one.begin()
        one.send({home: [b"open"]})
        said(findings(query), Verdict.WARNING, "process 4711 on host-a, query query-of-host-a runs the query now")
        one.transaction.abort()
        said(findings(query), Verdict.OK, "no transaction is open under")


def ran(broker: DevBroker, query: Query, batches: int) -> None:
    """Micro-batches that were committed to Kafka."""
    assert query.sink is not None
    home = TopicPartition(str(query.sink.topic), 0)
    with driver(broker, str(query.transactional_id), home) as one:
        one.transaction.claim(60_000)
        for number in range(batches):
            assert one.run(number, {home: [b"x"]})


def logged(broker: DevBroker, query: Query, planned: int, committed: int, query_id: str = QUERY) -> None:
    """The checkpoint that goes with it; micro-batch n ends at n + 1."""
    (name,) = list(query.source.subscription.topics_to_describe or ())
    with client_of(broker) as client:
        topic_id = str(client.metadata([name]).topics[name].topic_id)
    ends = {number: {TopicPartition(name, 0): number + 1} for number in range(planned + 1)}
    write_log(Path(query.checkpoint), query_id, ends, committed, {name: topic_id})


def test_a_checkpoint_that_is_older_than_the_output(broker: DevBroker, tmp_path: Path) -> None:
    query = on(broker, tmp_path)
    ran(broker, query, 5)
    logged(broker, query, 2, 2)
    said(findings(query), Verdict.PROBLEM, "Kafka has batch 4, the checkpoint knows only up to 2")


def test_a_checkpoint_of_another_query(broker: DevBroker, tmp_path: Path) -> None:
    query = on(broker, tmp_path)
    ran(broker, query, 3)
    logged(broker, query, 2, 2, "another-query")
    said(findings(query), Verdict.PROBLEM, "two queries share the id, or the checkpoint was copied")


def test_a_checkpoint_that_is_gone(broker: DevBroker, tmp_path: Path) -> None:
    query = on(broker, tmp_path)
    ran(broker, query, 2)
    said(findings(query), Verdict.WARNING, "has no micro-batch yet, but the transactional id has committed batch 1")


def test_a_marker_that_is_forgotten(broker: DevBroker, tmp_path: Path) -> None:
    query = on(broker, tmp_path)
    logged(broker, query, 1, 0)  # planned in 1970
    found = said(findings(query), Verdict.PROBLEM, "batch 1 was planned", "cannot be known any more")
    assert "sparkonce recover FILE --assume" in found.remedy


def test_records_that_are_gone(broker: DevBroker, tmp_path: Path) -> None:
    query = on(broker, tmp_path)
    (name,) = list(query.source.subscription.topics_to_describe or ())
    logged(broker, query, 4, 4)
    said(findings(query), Verdict.PROBLEM, f"the logs of {name}-0 end before what was read")
    with client_of(broker) as client:
        fill(client, TopicPartition(name, 0), 20)
        said(findings(query), Verdict.OK, "15 offsets are waiting")
        delete_records(broker, name, 10)
        said(findings(query), Verdict.PROBLEM, f"5 offsets of {name}-0 were deleted before they were read")
        delete_topics(client, [name])
        assert wait_until(lambda: name not in client.metadata(None).topics, Deadline.after(30))
        create_topics(client, [NewTopic(name, 1)])
    assert wait_until(lambda: any("made anew" in text for text in problems(findings(query))), Deadline.after(20))


def delete_records(broker: DevBroker, topic: str, before: int) -> None:
    library: Any = confluent_admin
    admin = library.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([ConfluentPartition(topic, 0, before)]).values():
        future.result(30)


def test_another_program_in_the_marker_group(broker: DevBroker, tmp_path: Path) -> None:
    query = on(broker, tmp_path)
    assert query.sink is not None
    with client_of(broker) as client:
        init_producer(client, query.transactional_id, 60_000)
        offsets = {TopicPartition(str(query.sink.topic), 0): GroupOffset(7, "mine")}
        commit_offsets(client, f"sparkonce.{query.transactional_id}", offsets)
    said(findings(query), Verdict.PROBLEM, "holds offsets that sparkonce did not write")


def test_two_clusters(broker: DevBroker, broker_tv1: DevBroker, topic: TopicFactory, tmp_path: Path) -> None:
    query = query_on(broker.bootstrap_servers, topic(broker), "elsewhere", new_id(), tmp_path / "checkpoint")
    assert query.sink is not None
    other = query_on(broker_tv1.bootstrap_servers, "x", topic(broker_tv1), new_id(), tmp_path).sink
    found = findings(replace(query, sink=other))
    said(found, Verdict.OK, f"1 broker of the source at {broker.bootstrap_servers}")
    said(found, Verdict.OK, f"1 broker of the sink at {broker_tv1.bootstrap_servers}")
    said(found, Verdict.WARNING, "transaction.version is 1")
    assert problems(found) == []

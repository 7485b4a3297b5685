"""`sparkonce transactions` on transactions that are really open, expired, hanging."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sparkonce.deadline import Deadline
from sparkonce.devbroker import QUICK_JVM, DevBroker
from sparkonce.errors import FencedError, UsageError
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.ops import transactions
from sparkonce.ops.aborting import abort
from sparkonce.ops.owners import read_claim
from sparkonce.ops.transactions import describe, find_hanging, overview
from sparkonce.wire import (
    Client,
    ProduceSettings,
    TransactionProtocol,
    describe_transaction,
    init_producer,
    produce,
)
from sparkonce.wire.diagnosis import may_write_transactional_id
from tests.broker.ops_samples import run
from tests.broker.transaction_samples import driver, new_id
from tests.broker.wire_samples import add_under_v1, client_of, partitions_of, record_batch, values_in
from tests.conftest import TopicFactory


@pytest.fixture(scope="module")
def careless() -> Iterator[DevBroker]:
    """A broker that writes transactional records without asking the coordinator, as all did before 3.6."""
    properties = {"transaction.partition.verification.enable": "false"}
    with DevBroker(transaction_version=1, properties=properties, jvm_options=QUICK_JVM) as started:
        yield started


def leave_hanging(client: Client, name: str, tp: TopicPartition) -> ProducerIdentity:
    """A record of a transaction that the coordinator never heard of."""
    identity = init_producer(client, name, 60_000)
    settings = ProduceSettings(transactional_id=name, protocol=TransactionProtocol.V1)
    produce(client, {tp: record_batch([b"lost"], identity, 0, transactional=True)}, settings)
    return identity


def test_an_open_transaction_is_listed_with_its_owner(either: DevBroker, topic: TopicFactory) -> None:
    name, other = new_id(), new_id()
    home, second = partitions_of(topic(either, partitions=2), 2)
    with driver(either, name, home) as one:
        one.transaction.claim(60_000)
        assert one.run(4, {home: [b"done"]})
        one.begin()
        one.send({home: [b"open"], second: [b"open"]})
        init_producer(one.client, other, 30_000)
        found = overview(one.client)
        listed = {each.transactional_id: each for each in found.transactions}
        assert listed[name].is_open
        assert {home, second} <= set(listed[name].description.partitions)
        assert str(listed[name].claim.owner) == "process 4711 on host-a, query query-of-host-a"
        marker = listed[name].claim.marker
        assert marker is not None
        assert marker.batch_id == 4
        assert listed[name].overdue_ms(found.now_ms) == 0
        assert not listed[other].is_open
        assert not listed[other].claim.is_ours
        assert [one for one in found.hanging if one.range.topic_partition in (home, second)] == []

        answer = run("transactions", "list", name, "--bootstrap-server", either.bootstrap_servers, "--json")
        assert answer.exit_code == 0, answer.output
        (record,) = json.loads(answer.stdout)["transactions"]
        assert record["open"] is True
        assert record["committed_batch_id"] == 4
        text = run("transactions", "describe", name, "--bootstrap-server", either.bootstrap_servers).stdout
        assert "owner       process 4711 on host-a, query query-of-host-a" in text
        assert "committed   batch 4 of query query-of-host-a" in text
        assert f"    {home}\n    {second}" in text
        one.transaction.abort()


def test_abort_fences_the_driver_and_shows_nothing(either: DevBroker, topic: TopicFactory) -> None:
    name = new_id()
    home = TopicPartition(topic(either), 0)
    where = ("--bootstrap-server", either.bootstrap_servers)
    with driver(either, name, home) as one:
        one.transaction.claim(60_000)
        assert one.run(0, {home: [b"done"]})
        one.begin()
        one.send({home: [b"open"]})
        refused = run("transactions", "abort", name, *where)
        assert refused.exit_code == 1
        assert "stops with FencedError" in " ".join(refused.output.split())
        assert "add --yes" in refused.output
        assert describe(one.client, name).is_open

        done = run("transactions", "abort", name, *where, "--yes")
        assert done.exit_code == 0, done.output
        assert f"The transaction of {name} is aborted" in done.output
        assert "The last committed batch is 0, as before" in done.output
        with pytest.raises(FencedError, match="sparkonce transactions abort"):
            one.pre_commit(1)
        again = run("transactions", "abort", name, *where, "--yes")
        assert again.exit_code == 1
        assert "no transaction is open" in again.output
    with driver(either, name, home, "host-b") as two:
        found = two.transaction.claim(60_000)
        assert found is not None
        assert found.batch_id == 0
        assert two.run(1, {home: [b"again"]})
    assert values_in(either, home.topic, 1) == [b"done", b"again"]


def test_abort_of_another_program_by_json(broker: DevBroker, topic: TopicFactory) -> None:
    name, tp = new_id(), TopicPartition(topic(broker), 0)
    with client_of(broker) as client:
        identity = init_producer(client, name, 60_000)
        settings = ProduceSettings(transactional_id=name)
        produce(client, {tp: record_batch([b"open"], identity, 0, transactional=True)}, settings)
        before = read_claim(client, name)
        answer = run("transactions", "abort", name, "--bootstrap-server", broker.bootstrap_servers, "--json", "--yes")
        assert answer.exit_code == 0, answer.output
        record = json.loads(answer.stdout)
        assert record["aborted"] is True
        assert record["before"]["sparkonce"] is False
        assert record["after"]["open"] is False
        assert read_claim(client, name) == before


def test_an_id_that_does_not_exist_is_not_made(broker: DevBroker) -> None:
    name = new_id()
    with client_of(broker) as client:
        for command in ("describe", "abort"):
            answer = run("transactions", command, name, "--bootstrap-server", broker.bootstrap_servers)
            assert answer.exit_code == 1
            assert f"does not know the transactional id {name}" in answer.output
        with pytest.raises(UsageError):
            describe_transaction(client, name)


def test_the_question_for_permission_changes_nothing(either: DevBroker, topic: TopicFactory) -> None:
    name, unused = new_id(), new_id()
    tp = TopicPartition(topic(either), 0)
    with client_of(either) as client:
        identity = init_producer(client, name, 60_000)
        add_under_v1(client, name, identity, [tp])
        settings = ProduceSettings(transactional_id=name)
        produce(client, {tp: record_batch([b"open"], identity, 0, transactional=True)}, settings)
        before = describe_transaction(client, name)
        assert before.state == "Ongoing"
        assert may_write_transactional_id(client, name)
        assert may_write_transactional_id(client, unused)
        assert describe_transaction(client, name) == before
        with pytest.raises(UsageError):
            describe_transaction(client, unused)
        init_producer(client, name, 60_000)


def test_a_transaction_that_only_a_partition_knows_hangs(careless: DevBroker, topic: TopicFactory) -> None:
    name, tp = new_id(), TopicPartition(topic(careless), 0)
    with client_of(careless) as client:
        assert find_hanging(client) == ((), ())
        identity = leave_hanging(client, name, tp)
        (hanging,), _ = find_hanging(client)
        assert (hanging.range.topic_partition, hanging.range.start_offset) == (tp, 0)
        assert hanging.range.producer_id == identity.producer_id
        assert hanging.transactional_id == name
        answer = run("transactions", "list", "--bootstrap-server", careless.bootstrap_servers)
        assert answer.exit_code == 1
        assert f"{tp} HANGS at offset 0: a transaction of {name} is open there" in " ".join(answer.output.split())
        assert f"abort --topic {tp.topic} --partition 0 --start-offset 0" in answer.output
        assert run("transactions", "list", "--no-scan", "--bootstrap-server", careless.bootstrap_servers).exit_code == 0


def test_a_transaction_that_the_broker_does_not_expire(
    broker: DevBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker of the tests looks every ten seconds: between its timeout and then it is overdue."""
    name, home = new_id(), TopicPartition(topic(broker), 0)
    with driver(broker, name, home) as one:
        one.transaction.claim(60_000)
        one.begin(1_000)
        one.send({home: [b"open"]})
        clock: Any = transactions.now_ms
        seen = overview(one.client, name, scan=False)
        assert seen.transactions[0].is_open
        monkeypatch.setattr(transactions, "now_ms", lambda: clock() + 5_000)
        answer = run("transactions", "list", name, "--no-scan", "--bootstrap-server", broker.bootstrap_servers)
        assert "longer than its timeout; the broker aborts it within seconds" in " ".join(answer.output.split())
        assert answer.exit_code == 0
        monkeypatch.setattr(transactions, "now_ms", lambda: clock() + 3_600_000)
        answer = run("transactions", "list", name, "--no-scan", "--bootstrap-server", broker.bootstrap_servers)
        assert f"{name} HANGS: it is open for 59 min" in " ".join(answer.output.split())
        assert answer.exit_code == 1


def test_an_expired_transaction_is_over(topic: TopicFactory) -> None:
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with DevBroker(properties=often, jvm_options=QUICK_JVM) as watchful:
        name, home = new_id(), TopicPartition(topic(watchful), 0)
        with driver(watchful, name, home) as one:
            one.transaction.claim(60_000)
            one.begin(1_000)
            one.send({home: [b"open"]})
            until = Deadline.after(60)
            while describe(one.client, name).is_open:
                assert not until.expired
                one.client.connections.pause(0.1)
            assert describe(one.client, name).description.state == "CompleteAbort"
            with pytest.raises(UsageError, match="no transaction is open"):
                abort(one.client, describe(one.client, name))
            listed = overview(one.client)
            assert listed.hanging == ()
            assert not listed.has_problems


def test_where_the_cluster_is_must_be_said() -> None:
    answer = run("transactions", "list")
    assert answer.exit_code == 2
    assert "--bootstrap-server HOST:PORT or --pipeline FILE" in answer.output
    answer = run("transactions", "list", "--bootstrap-server", "127.0.0.1:1", "--property", "nonsense")
    assert answer.exit_code == 2
    answer = run("transactions", "list", "--bootstrap-server", "127.0.0.1:1")
    assert answer.exit_code == 1
    assert "no bootstrap server could be used" in answer.output
    assert "Traceback" not in answer.output

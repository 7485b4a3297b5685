"""Whole transactions by hand, under both protocols; judged by librdkafka."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.errors import AbortableError, FencedError, SparkonceError, UsageError
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.wire import (
    Appended,
    Client,
    Deadline,
    FetchFrom,
    GroupOffset,
    Isolation,
    OffsetAt,
    ProduceSettings,
    TransactionProtocol,
    add_partitions,
    commit_offsets_in_transaction,
    committed_offsets,
    describe_producers,
    describe_transaction,
    end_transaction,
    fetch,
    init_producer,
    list_offsets,
    list_transactions,
    produce,
    send_produce,
)
from tests.broker.wire_samples import add_under_v1, client_of, partitions_of, record_batch, values_in
from tests.conftest import TopicFactory

TIMEOUT_MS = 60_000


@pytest.fixture
def transactional_id() -> str:
    return f"tx-{uuid.uuid4()}"


def write(
    client: Client,
    transactional_id: str,
    identity: ProducerIdentity,
    values: dict[TopicPartition, list[bytes]],
    sequence: int = 0,
) -> None:
    """Records of an open transaction, without adding their partitions."""
    batches = {tp: record_batch(v, identity, sequence, transactional=True) for tp, v in values.items()}
    produce(client, batches, ProduceSettings(transactional_id=transactional_id))


def test_records_and_offsets_are_committed_together(
    either: DevBroker, topic: TopicFactory, transactional_id: str
) -> None:
    name, group = topic(either, partitions=2), f"group-{uuid.uuid4()}"
    first, second = partitions_of(name, 2)
    with client_of(either) as client:
        identity = init_producer(client, transactional_id, TIMEOUT_MS)
        add_under_v1(client, transactional_id, identity, [first, second], group)
        write(client, transactional_id, identity, {first: [b"a"], second: [b"b"]})
        offsets = {first: GroupOffset(11, "marker")}
        commit_offsets_in_transaction(client, transactional_id, identity, group, offsets)
        assert list_offsets(client, {first: OffsetAt.LATEST}, Isolation.READ_COMMITTED)[first].offset == 0
        assert list_offsets(client, {first: OffsetAt.LATEST})[first].offset == 1
        assert values_in(either, name, 2, settled=False) == []

        following = end_transaction(client, transactional_id, identity, commit=True)
        # Right after the end the markers may still be on their way: 88 is answered and waited for.
        assert committed_offsets(client, group, [first]) == offsets
        is_v2 = client.transaction_protocol() is TransactionProtocol.V2
        assert following.producer_id == identity.producer_id
        assert following.producer_epoch == identity.producer_epoch + (1 if is_v2 else 0)
    assert values_in(either, name, 2) == [b"a", b"b"]


def test_an_aborted_transaction_leaves_nothing_but_its_name(
    either: DevBroker, topic: TopicFactory, transactional_id: str
) -> None:
    tp, group = TopicPartition(topic(either), 0), f"group-{uuid.uuid4()}"
    with client_of(either) as client:
        identity = init_producer(client, transactional_id, TIMEOUT_MS)
        add_under_v1(client, transactional_id, identity, [tp], group)
        write(client, transactional_id, identity, {tp: [b"never"]})
        commit_offsets_in_transaction(client, transactional_id, identity, group, {tp: GroupOffset(5)})
        end_transaction(client, transactional_id, identity, commit=False)
        assert committed_offsets(client, group, [tp]) == {}
        until = Deadline.after_ms(30_000)
        while (fetched := fetch(client, {tp: FetchFrom(0)})[tp]).last_stable_offset < 2:
            assert not until.expired
        assert [a.producer_id for a in fetched.aborted] == [identity.producer_id]
        assert [a.first_offset for a in fetched.aborted] == [0]
    assert values_in(either, tp.topic, 1) == []
    assert values_in(either, tp.topic, 1, isolation="read_uncommitted") == [b"never"]


def test_several_transactions_one_after_another(either: DevBroker, topic: TopicFactory, transactional_id: str) -> None:
    tp = TopicPartition(topic(either), 0)
    with client_of(either) as client:
        identity = init_producer(client, transactional_id, TIMEOUT_MS)
        for round_number in range(4):
            add_under_v1(client, transactional_id, identity, [tp])
            write(client, transactional_id, identity, {tp: [f"{round_number}".encode()]})
            identity = end_transaction(client, transactional_id, identity, commit=round_number != 2)
            if client.transaction_protocol() is TransactionProtocol.V1:
                identity = init_producer(client, transactional_id, TIMEOUT_MS, identity)
    assert values_in(either, tp.topic, 1) == [b"0", b"1", b"3"]


def test_a_transaction_of_offsets_only(either: DevBroker, topic: TopicFactory, transactional_id: str) -> None:
    tp, group = TopicPartition(topic(either), 0), f"group-{uuid.uuid4()}"
    with client_of(either) as client:
        identity = init_producer(client, transactional_id, TIMEOUT_MS)
        add_under_v1(client, transactional_id, identity, [], group)
        commit_offsets_in_transaction(client, transactional_id, identity, group, {tp: GroupOffset(3, "only")})
        end_transaction(client, transactional_id, identity, commit=True)
        assert committed_offsets(client, group, [tp]) == {tp: GroupOffset(3, "only")}


def test_a_replaced_process_is_refused_everywhere(
    either: DevBroker, topic: TopicFactory, transactional_id: str
) -> None:
    tp = TopicPartition(topic(either), 0)
    with client_of(either) as old, client_of(either) as new:
        mine = init_producer(old, transactional_id, TIMEOUT_MS)
        add_under_v1(old, transactional_id, mine, [tp])
        write(old, transactional_id, mine, {tp: [b"before"]})
        theirs = init_producer(new, transactional_id, TIMEOUT_MS)
        assert theirs.producer_epoch > mine.producer_epoch

        # A sending task cannot tell fencing from expiry: it aborts, and the driver finds out.
        with pytest.raises(AbortableError) as refused:
            write(old, transactional_id, mine, {tp: [b"late"]}, sequence=1)
        assert refused.value.fault is not None
        assert refused.value.fault.code in (47, 90)
        for commit in (True, False):
            with pytest.raises(FencedError, match=transactional_id):
                end_transaction(old, transactional_id, mine, commit=commit)
        with pytest.raises(FencedError, match="took over"):
            init_producer(old, transactional_id, TIMEOUT_MS, mine)
        if old.transaction_protocol() is TransactionProtocol.V1:
            with pytest.raises(FencedError):
                add_under_v1(old, transactional_id, mine, [tp])

        add_under_v1(new, transactional_id, theirs, [tp])
        write(new, transactional_id, theirs, {tp: [b"after"]})
        end_transaction(new, transactional_id, theirs, commit=True)
    assert values_in(either, tp.topic, 1) == [b"after"]


def test_the_held_identity_can_be_raised_while_it_is_current(either: DevBroker, transactional_id: str) -> None:
    with client_of(either) as client:
        first = init_producer(client, transactional_id, TIMEOUT_MS)
        second = init_producer(client, transactional_id, TIMEOUT_MS, first)
        assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)


def test_two_clients_share_a_producer_on_different_partitions(
    either: DevBroker, topic: TopicFactory, transactional_id: str
) -> None:
    name = topic(either, partitions=2)
    first, second = partitions_of(name, 2)
    with client_of(either) as driver, client_of(either) as one, client_of(either) as two:
        identity = init_producer(driver, transactional_id, TIMEOUT_MS)
        add_under_v1(driver, transactional_id, identity, [first, second])
        for number in range(3):
            write(one, transactional_id, identity, {first: [f"one-{number}".encode()]}, sequence=number)
            write(two, transactional_id, identity, {second: [f"two-{number}".encode()]}, sequence=number)
        end_transaction(driver, transactional_id, identity, commit=True)
    assert values_in(either, name, 2) == [f"{who}-{n}".encode() for who in ("one", "two") for n in range(3)]


def test_parallel_first_produces_all_get_in(either: DevBroker, topic: TopicFactory, transactional_id: str) -> None:
    name = topic(either, partitions=8)
    partitions = partitions_of(name, 8)
    failures: list[SparkonceError] = []
    with client_of(either) as driver:
        identity = init_producer(driver, transactional_id, TIMEOUT_MS)
        add_under_v1(driver, transactional_id, identity, partitions)
        start = threading.Barrier(len(partitions))

        def task(tp: TopicPartition) -> None:
            with client_of(either) as client:
                client.leader(tp)
                start.wait()
                try:
                    write(client, transactional_id, identity, {tp: [str(tp).encode()]})
                except SparkonceError as error:
                    failures.append(error)

        threads = [threading.Thread(target=task, args=(tp,)) for tp in partitions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        end_transaction(driver, transactional_id, identity, commit=True)
    assert values_in(either, name, 8) == [str(tp).encode() for tp in partitions]


def test_five_requests_in_flight_inside_a_transaction(
    either: DevBroker, topic: TopicFactory, transactional_id: str
) -> None:
    tp = TopicPartition(topic(either), 0)
    settings = ProduceSettings(transactional_id=transactional_id)
    with client_of(either) as client:
        identity = init_producer(client, transactional_id, TIMEOUT_MS)
        add_under_v1(client, transactional_id, identity, [tp])
        write(client, transactional_id, identity, {tp: [b"0"]})
        address = client.leader(tp)
        batches = [record_batch([f"{i}".encode()], identity, i, transactional=True) for i in range(1, 6)]
        handles = [send_produce(client, address, {tp: batch}, settings) for batch in batches]
        assert all(isinstance(handle.result()[tp], Appended) for handle in handles)
        end_transaction(client, transactional_id, identity, commit=True)
    assert values_in(either, tp.topic, 1) == [f"{i}".encode() for i in range(6)]


def test_a_transaction_is_seen_from_outside(either: DevBroker, topic: TopicFactory, transactional_id: str) -> None:
    tp = TopicPartition(topic(either), 0)
    with client_of(either) as client:
        with pytest.raises(UsageError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            describe_transaction(client, transactional_id)
        identity = init_producer(client, transactional_id, TIMEOUT_MS)
        add_under_v1(client, transactional_id, identity, [tp])
        write(client, transactional_id, identity, {tp: [b"x", b"y"]})
        described = describe_transaction(client, transactional_id)
        assert (described.state, described.partitions) == ("Ongoing", (tp,))
        assert (described.producer_id, described.timeout_ms) == (identity.producer_id, TIMEOUT_MS)
        assert transactional_id in {t.transactional_id for t in list_transactions(client, ["Ongoing"])}
        assert list_transactions(client, producer_ids=[identity.producer_id])[0].state == "Ongoing"
        (state,) = describe_producers(client, [tp])[tp]
        assert (state.producer_epoch, state.last_sequence) == (identity.producer_epoch, 1)
        assert state.transaction_start_offset == 0
        end_transaction(client, transactional_id, identity, commit=False)


def test_a_stable_offset_is_waited_for(either: DevBroker, topic: TopicFactory, transactional_id: str) -> None:
    tp, group = TopicPartition(topic(either), 0), f"group-{uuid.uuid4()}"
    with client_of(either) as driver, client_of(either) as reader:
        identity = init_producer(driver, transactional_id, TIMEOUT_MS)
        add_under_v1(driver, transactional_id, identity, [], group)
        commit_offsets_in_transaction(driver, transactional_id, identity, group, {tp: GroupOffset(9, "m")})
        assert committed_offsets(reader, group, [tp], require_stable=False) == {}
        with pytest.raises(SparkonceError, match=r"UNSTABLE_OFFSET_COMMIT \(88\).*gave up"):
            committed_offsets(reader, group, [tp], Deadline.after_ms(300))
        later = threading.Timer(0.5, end_transaction, (driver, transactional_id, identity), {"commit": True})
        later.start()
        began = time.monotonic()
        assert committed_offsets(reader, group, [tp]) == {tp: GroupOffset(9, "m")}
        assert time.monotonic() - began > 0.3
        later.join()


def test_a_timeout_above_the_brokers_limit(either: DevBroker, transactional_id: str) -> None:
    with client_of(either) as client, pytest.raises(UsageError, match=r"transaction\.max\.timeout\.ms"):
        init_producer(client, transactional_id, 10_000_000)


def test_offsets_for_a_topic_that_does_not_exist(either: DevBroker, transactional_id: str) -> None:
    absent, group = TopicPartition(f"absent-{uuid.uuid4()}", 0), f"group-{uuid.uuid4()}"
    with client_of(either) as client:
        identity = init_producer(client, transactional_id, TIMEOUT_MS)
        add_under_v1(client, transactional_id, identity, [], group)
        with pytest.raises(UsageError, match=f"{absent.topic}.*does not exist"):
            commit_offsets_in_transaction(client, transactional_id, identity, group, {absent: GroupOffset(1)})


def test_a_partition_that_was_not_added_is_refused_under_the_old_protocol(
    broker_tv1: DevBroker, topic: TopicFactory, transactional_id: str
) -> None:
    tp = TopicPartition(topic(broker_tv1), 0)
    with client_of(broker_tv1) as client:
        identity = init_producer(client, transactional_id, TIMEOUT_MS)
        with pytest.raises(AbortableError):
            write(client, transactional_id, identity, {tp: [b"x"]})


def test_the_old_protocol_still_works_on_a_new_cluster(
    broker: DevBroker, topic: TopicFactory, transactional_id: str
) -> None:
    tp = TopicPartition(topic(broker), 0)
    v1 = TransactionProtocol.V1
    with client_of(broker) as client:
        # As after a live upgrade of the cluster: the driver decided on V1 before it, and tells its tasks.
        identity = init_producer(client, transactional_id, TIMEOUT_MS)
        add_partitions(client, transactional_id, identity, [tp])
        settings = ProduceSettings(transactional_id=transactional_id, protocol=v1)
        produce(client, {tp: record_batch([b"x"], identity, 0, transactional=True)}, settings)
        assert end_transaction(client, transactional_id, identity, commit=True, protocol=v1) == identity
        # The commit's markers may still be under way; the answer to this says that they are written.
        following = init_producer(client, transactional_id, TIMEOUT_MS, identity)
        assert following.producer_epoch > identity.producer_epoch
    assert values_in(broker, tp.topic, 1) == [b"x"]

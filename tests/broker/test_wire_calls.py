"""Every call once, under both transaction protocols."""

from __future__ import annotations

import time
import uuid

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.errors import AbortableError, SparkonceError, UsageError
from sparkonce.model import NO_PRODUCER, TopicPartition
from sparkonce.wire import (
    Appended,
    FetchFrom,
    FetchSettings,
    GroupOffset,
    Isolation,
    NewTopic,
    OffsetAt,
    ProduceSettings,
    TransactionProtocol,
    broker_configs,
    commit_offsets,
    committed_offsets,
    create_partitions,
    create_topics,
    delete_topics,
    describe_producers,
    fetch,
    init_producer,
    list_offsets,
    produce,
    send_fetch,
    send_produce,
    topic_configs,
    wait_any,
)
from tests.broker.wire_samples import client_of, partitions_of, record_batch, values_in
from tests.conftest import TopicFactory

PLAIN = ProduceSettings(idempotent=False)


def test_the_protocol_is_discovered(broker: DevBroker, broker_tv1: DevBroker) -> None:
    with client_of(broker) as new, client_of(broker_tv1) as old:
        assert new.transaction_protocol() is TransactionProtocol.V2
        assert old.transaction_protocol() is TransactionProtocol.V1


def test_records_go_in_and_come_out(either: DevBroker, topic: TopicFactory) -> None:
    name = topic(either, partitions=3)
    partitions = partitions_of(name, 3)
    with client_of(either) as client:
        sent = {tp: record_batch([f"{tp}-{i}".encode() for i in range(4)]) for tp in partitions}
        assert produce(client, sent, PLAIN) == dict.fromkeys(partitions, Appended(0, -1, 0))
        fetched = fetch(client, {tp: FetchFrom(0) for tp in partitions})
        for tp in partitions:
            assert fetched[tp].high_watermark == fetched[tp].last_stable_offset == 4
            assert (fetched[tp].log_start_offset, fetched[tp].aborted) == (0, ())
            # The broker only writes the offset and leader epoch into a batch: all behind them is as it was sent.
            assert bytes(fetched[tp].records[16:]) == sent[tp][16:]
    assert values_in(either, name, 3) == [f"{tp}-{i}".encode() for tp in partitions for i in range(4)]


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_every_kind_of_acknowledgement(broker: DevBroker, topic: TopicFactory, acks: int) -> None:
    tp = TopicPartition(topic(broker), 0)
    with client_of(broker) as client:
        appended = produce(client, {tp: record_batch([b"a", b"b"])}, ProduceSettings(acks=acks, idempotent=False))
        assert appended[tp].base_offset == (0 if acks else -1)
        produce(client, {tp: record_batch([b"c"])}, PLAIN)
    assert values_in(broker, tp.topic, 1) == [b"a", b"b", b"c"]


def test_many_requests_are_under_way_at_once_and_stay_in_order(either: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(either), 0)
    with client_of(either) as client:
        identity = init_producer(client, None, 0)
        produce(client, {tp: record_batch([b"first"], identity, 0)})
        address = client.leader(tp)
        handles = [
            send_produce(client, address, {tp: record_batch([f"{i:03d}".encode()], identity, i)}) for i in range(1, 41)
        ]
        assert sum(not handle.done for handle in handles) >= 2
        wait_any(client, handles)
        outcomes = [handle.result()[tp] for handle in handles]
    assert [o.base_offset for o in outcomes if isinstance(o, Appended)] == list(range(1, 41))
    assert values_in(either, tp.topic, 1) == [b"first", *(f"{i:03d}".encode() for i in range(1, 41))]


def test_the_next_fetch_is_under_way_while_the_last_is_read(broker: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(broker), 0)
    with client_of(broker) as client:
        for i in range(3):
            produce(client, {tp: record_batch([f"{i}".encode()])}, PLAIN)
        address = client.leader(tp)
        one = FetchSettings(max_bytes=1)
        handles = [send_fetch(client, address, {tp: FetchFrom(i, 1)}, one) for i in range(3)]
        offsets = []
        for handle in handles:
            outcome = handle.result()[tp]
            assert not isinstance(outcome, SparkonceError)
            offsets.append(int.from_bytes(outcome.records[:8], "big"))
        assert offsets == [0, 1, 2]


def test_an_empty_fetch_waits_as_long_as_asked(broker: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(broker), 0)
    with client_of(broker, request_timeout_ms=300) as client:
        produce(client, {tp: record_batch([b"a"])}, PLAIN)
        began = time.monotonic()
        fetched = fetch(client, {tp: FetchFrom(1)}, FetchSettings(max_wait_ms=700))
        # Longer than the request time-out: the wait was asked for, it is no silence.
        assert 0.6 < time.monotonic() - began < 30
        assert len(fetched[tp].records) == 0


def test_an_offset_outside_of_the_log_is_a_usage_error(broker: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(broker), 0)
    with client_of(broker) as client, pytest.raises(UsageError, match="OFFSET_OUT_OF_RANGE"):
        fetch(client, {tp: FetchFrom(99)})


def test_ten_megabytes_in_one_answer(broker: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(broker, config={"max.message.bytes": "20000000"}), 0)
    batch = record_batch([bytes([i]) * 1_000_000 for i in range(10)])
    with client_of(broker) as client:
        produce(client, {tp: batch}, PLAIN)
        fetched = fetch(client, {tp: FetchFrom(0, 20_000_000)})
        assert bytes(fetched[tp].records[16:]) == batch[16:]


def test_offsets_are_listed(either: DevBroker, topic: TopicFactory) -> None:
    name = topic(either, partitions=2)
    full, empty = partitions_of(name, 2)
    with client_of(either) as client:
        before_ms = int(time.time() * 1000)
        produce(client, {full: record_batch([b"a", b"b", b"c"])}, PLAIN)
        latest = list_offsets(client, dict.fromkeys([full, empty], OffsetAt.LATEST))
        assert (latest[full].offset, latest[empty].offset) == (3, 0)
        assert list_offsets(client, {full: OffsetAt.EARLIEST})[full].offset == 0
        at = list_offsets(client, {full: before_ms, empty: before_ms})
        assert at[full].offset == 0
        assert at[full].timestamp_ms >= before_ms
        assert at[empty].offset == -1
        assert list_offsets(client, {full: OffsetAt.MAX_TIMESTAMP})[full].offset in (0, 1, 2)
        stable = list_offsets(client, {full: OffsetAt.LATEST}, Isolation.READ_COMMITTED)
        assert stable[full].offset == 3


def test_the_cluster_is_described(either: DevBroker, topic: TopicFactory) -> None:
    name = topic(either, partitions=5)
    with client_of(either) as client:
        some = client.metadata([name])
        assert list(some.topics) == [name]
        assert [p.index for p in some.topics[name].partitions] == [0, 1, 2, 3, 4]
        assert some.topics[name].partitions[0].leader in some.brokers
        assert some.topics[name].topic_id.int != 0
        assert some.cluster_id
        assert some.controller_id in some.brokers
        assert name in client.metadata(None).topics
        assert client.metadata(()).topics == {}


def test_five_hundred_partitions(broker: DevBroker) -> None:
    name = f"wide-{uuid.uuid4().hex[:8]}"
    with client_of(broker) as client:
        create_topics(client, [NewTopic(name, 500, 1)])
        latest = list_offsets(client, dict.fromkeys(partitions_of(name, 500), OffsetAt.LATEST))
        assert len(latest) == 500
        assert {listed.offset for listed in latest.values()} == {0}
        assert len(client.metadata([name]).topics[name].partitions) == 500
        delete_topics(client, [name])


def test_a_groups_offsets(either: DevBroker, topic: TopicFactory) -> None:
    name, group = topic(either, partitions=2), f"group-{uuid.uuid4()}"
    first, second = partitions_of(name, 2)
    with client_of(either) as client:
        assert committed_offsets(client, group, [first]) == {}
        commit_offsets(client, group, {first: GroupOffset(7, "märk", 0)})
        assert committed_offsets(client, group, [first, second]) == {first: GroupOffset(7, "märk", 0)}
        assert committed_offsets(client, group) == {first: GroupOffset(7, "märk", 0)}
        with pytest.raises(UsageError, match="OFFSET_METADATA_TOO_LARGE"):
            commit_offsets(client, group, {first: GroupOffset(8, "x" * 5_000)})
        assert committed_offsets(client, group)[first].offset == 7


def test_topics_are_made_grown_and_deleted(either: DevBroker) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    with client_of(either) as client:
        ids = create_topics(client, [NewTopic(name, 2, 1, {"retention.ms": "12345"})])
        client.leader(TopicPartition(name, 1))
        assert client.metadata([name]).topics[name].topic_id == ids[name]
        with pytest.raises(UsageError, match="TOPIC_ALREADY_EXISTS"):
            create_topics(client, [NewTopic(name, 2, 1)])
        configs = topic_configs(client, name)
        assert (configs["retention.ms"].value, configs["retention.ms"].is_default) == ("12345", False)
        assert configs["max.message.bytes"].is_default
        create_partitions(client, {name: 3})
        client.leader(TopicPartition(name, 2))
        delete_topics(client, [name])
        with pytest.raises(UsageError, match="does not exist"):
            delete_topics(client, [f"{name}-never"])


def test_a_brokers_configuration(either: DevBroker) -> None:
    with client_of(either) as client:
        broker_id = next(iter(client.metadata(()).brokers))
        assert broker_configs(client, broker_id)["transaction.max.timeout.ms"].value == "900000"
        with pytest.raises(UsageError, match="no broker 4711"):
            broker_configs(client, 4711)


def test_an_idempotent_producer_without_transactions(either: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(either), 0)
    with client_of(either) as client:
        identity = init_producer(client, None, 0)
        assert identity != NO_PRODUCER
        batch = record_batch([b"once"], identity, 0)
        assert produce(client, {tp: batch})[tp].base_offset == 0
        # The broker recognises the sequence and does not write it again.
        assert produce(client, {tp: batch})[tp].base_offset == 0
        with pytest.raises(AbortableError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            produce(client, {tp: record_batch([b"gap"], identity, 9)})
        (state,) = describe_producers(client, [tp])[tp]
        assert (state.producer_id, state.last_sequence) == (identity.producer_id, 0)
    assert values_in(either, tp.topic, 1) == [b"once"]


def test_a_record_batch_that_is_too_large(broker: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(broker, config={"max.message.bytes": "2000"}), 0)
    with (
        client_of(broker) as client,
        pytest.raises(UsageError, match=r"MESSAGE_TOO_LARGE \(10\).*max.message.bytes"),
    ):
        produce(client, {tp: record_batch([bytes(5_000)])}, PLAIN)


def test_broken_records_are_refused(broker: DevBroker, topic: TopicFactory) -> None:
    tp = TopicPartition(topic(broker), 0)
    broken = bytearray(record_batch([b"abc"]))
    broken[-1] ^= 1
    with client_of(broker) as client, pytest.raises(AbortableError, match=r"CORRUPT_MESSAGE \(2\)"):
        produce(client, {tp: broken}, PLAIN)


def test_a_topic_that_does_not_exist(broker: DevBroker) -> None:
    tp = TopicPartition(f"absent-{uuid.uuid4()}", 0)
    began = time.monotonic()
    with client_of(broker) as client, pytest.raises(UsageError, match=f"{tp.topic} on .*create it"):
        produce(client, {tp: record_batch([b"x"])}, PLAIN)
    assert time.monotonic() - began < 40


def test_a_topic_that_was_made_anew_is_found_again(broker: DevBroker) -> None:
    name = f"anew-{uuid.uuid4().hex[:8]}"
    tp = TopicPartition(name, 0)
    with client_of(broker) as client:
        create_topics(client, [NewTopic(name, 1, 1)])
        produce(client, {tp: record_batch([b"old"])}, PLAIN)
        delete_topics(client, [name])
        first_id = client.topic_ids([name])[name]
        create_topics(client, [NewTopic(name, 1, 1)])
        produce(client, {tp: record_batch([b"new"])}, PLAIN)
        assert client.topic_ids([name])[name] != first_id
    assert values_in(broker, name, 1) == [b"new"]

"""Requests as they are built and answers as they are read, without a broker.

Where a message is written or read by hand, kafka-python's generated code is the judge.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from kafka.protocol.admin import DescribeConfigsResponse, DescribeTransactionsResponse
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsResponse, OffsetFetchResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import AddPartitionsToTxnResponse, ProduceRequest, ProduceResponse

from sparkonce.errors import CorruptRecordsError, FencedError, RetriableError, SparkonceError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.wire.admin import read_configs
from sparkonce.wire.apis import DESCRIBE_CONFIGS, FETCH, FIND_COORDINATOR
from sparkonce.wire.cluster import NO_TOPIC_ID, LeaderCache, metadata_body, read_metadata
from sparkonce.wire.compact import compact_string, read_unsigned_varint, skip_tags, unsigned_varint
from sparkonce.wire.connection import Address, Buffer
from sparkonce.wire.fetch import AbortedTransaction, Fetched, FetchFrom, FetchSettings, fetch_body, read_fetch
from sparkonce.wire.groups import GroupOffset, offset_fetch_body, offset_topics, read_offset_fetch
from sparkonce.wire.inspection import read_description
from sparkonce.wire.kafka_python import build_message, decode_response, encode_header
from sparkonce.wire.offsets import ListedOffset, read_list_offsets
from sparkonce.wire.produce import Appended, ProduceSettings, produce_frame, read_produce
from sparkonce.wire.transactions import raise_partition_errors

A0, A1, B0 = TopicPartition("alpha", 0), TopicPartition("alpha", 1), TopicPartition("bêta", 0)
IDS = {"alpha": UUID(int=0xA1), "bêta": UUID(int=0xB2)}


def encoded(message: Any, version: int) -> bytes:
    return bytes(message.encode(version=version))


# Compact encodings


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16_383, 16_384, 2**28 - 1, 2**31 - 1])
def test_varints_come_back(value: int) -> None:
    data = memoryview(b"\xff" + unsigned_varint(value) + b"\xff")
    assert read_unsigned_varint(data, 1) == (value, len(data) - 1)


def test_an_endless_varint_is_refused() -> None:
    with pytest.raises(CorruptRecordsError):
        read_unsigned_varint(memoryview(b"\xff" * 10), 0)


def test_strings_and_tags() -> None:
    assert compact_string(None) == b"\x00"
    assert compact_string("") == b"\x01"
    assert compact_string("ê") == b"\x03\xc3\xaa"
    two_tags = b"\x02" + b"\x00\x03abc" + b"\x05\x01z"
    assert skip_tags(memoryview(two_tags + b"rest"), 0) == len(two_tags)


# Produce


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("transactional_id", [None, "tx-1"])
def test_a_produce_frame_is_what_kafka_python_encodes(version: int, transactional_id: str | None) -> None:
    batches: dict[TopicPartition, Buffer] = {A0: b"first" * 50, B0: memoryview(b"second"), A1: bytearray(b"third")}
    header = encode_header(ProduceRequest, version, 77, "me")
    settings = ProduceSettings(transactional_id=transactional_id, acks=1)
    frame = b"".join(bytes(piece) for piece in produce_frame(header, version, batches, IDS, settings, 4_000))

    def topic(name: str, *partitions: tuple[int, bytes]) -> dict[str, Any]:
        named = {"topic_id": IDS[name]} if version >= 13 else {"name": name}
        return named | {"partition_data": [{"index": i, "records": r} for i, r in partitions]}

    body = {
        "transactional_id": transactional_id,
        "acks": 1,
        "timeout_ms": 4_000,
        "topic_data": [topic("alpha", (0, b"first" * 50), (1, b"third")), topic("bêta", (0, b"second"))],
    }
    message = build_message(ProduceRequest, version, body)
    message.with_header(correlation_id=77, client_id="me")
    assert frame == bytes(message.encode(framed=True, header=True))


def test_records_are_not_copied_into_the_frame() -> None:
    records = bytearray(100)
    pieces = produce_frame(b"", 12, {A0: records}, IDS, ProduceSettings(), 1)
    assert any(piece is records for piece in pieces)


@pytest.mark.parametrize("version", [9, 12, 13])
def test_a_produce_answer_is_read_per_partition(version: int) -> None:
    named = {"topic_id": IDS["alpha"]} if version >= 13 else {"name": "alpha"}
    good = {"index": 0, "error_code": 0, "base_offset": 42, "log_append_time_ms": -1, "log_start_offset": 3}
    record_errors = [{"batch_index": 4, "batch_index_error_message": "no key"}]
    bad = {"index": 1, "error_code": 87, "base_offset": -1, "error_message": "bad", "record_errors": record_errors}
    body = {"responses": [named | {"partition_responses": [good, bad]}]}
    response = ProduceResponse.decode(encoded(build_message(ProduceResponse, version, body), version), version=version)
    outcomes = read_produce(response, IDS)
    assert outcomes[A0] == Appended(42, -1, 3)
    refused = outcomes[A1]
    assert isinstance(refused, SparkonceError)
    assert "bad; record 4: no key" in str(refused)


def test_a_topic_whose_id_is_unknown_is_still_named_in_its_error() -> None:
    partition = {"index": 0, "error_code": 100, "base_offset": -1}
    body = {"responses": [{"topic_id": NO_TOPIC_ID, "partition_responses": [partition]}]}
    response = ProduceResponse.decode(encoded(build_message(ProduceResponse, 13, body), 13), version=13)
    assert isinstance(read_produce(response, {"alpha": NO_TOPIC_ID})[A0], RetriableError)


# Fetch


@pytest.mark.parametrize("version", range(12, 19))
def test_a_fetch_request_has_no_session_and_names_topics_as_its_version_does(version: int) -> None:
    body = fetch_body(version, {A0: FetchFrom(5, 100), B0: FetchFrom(6)}, IDS, FetchSettings(max_wait_ms=9))
    data = encoded(build_message(FetchRequest, version, body), version)
    request = FetchRequest.decode(data, version=version)
    assert (request.session_id, request.session_epoch, request.max_wait_ms) == (0, -1, 9)
    assert request.isolation_level == 1
    first = request.topics[0]
    assert (first.topic_id == IDS["alpha"]) if version >= 13 else (first.topic == "alpha")
    assert (first.partitions[0].fetch_offset, first.partitions[0].partition_max_bytes) == (5, 100)


def fetch_answer(version: int, *, tags: bool = False) -> bytes:
    def topic(name: str, partitions: list[dict[str, Any]]) -> dict[str, Any]:
        named = {"topic_id": IDS[name]} if version >= 13 else {"topic": name}
        return named | {"partitions": partitions}

    common = {"high_watermark": 9, "last_stable_offset": 8, "log_start_offset": 1, "preferred_read_replica": -1}
    aborted = [{"producer_id": 70, "first_offset": 3}, {"producer_id": 71, "first_offset": 4}]
    first = common | {"partition_index": 0, "error_code": 0, "aborted_transactions": aborted, "records": b"xyz" * 99}
    second = common | {"partition_index": 1, "error_code": 6, "aborted_transactions": None, "records": None}
    third = common | {"partition_index": 0, "error_code": 0, "aborted_transactions": [], "records": b""}
    body: dict[str, Any] = {
        "throttle_time_ms": 0,
        "error_code": 0,
        "session_id": 0,
        "responses": [topic("alpha", [first, second]), topic("bêta", [third])],
    }
    if tags:
        body["node_endpoints"] = [{"node_id": 3, "host": "h", "port": 1, "rack": None}]
    return encoded(build_message(FetchResponse, version, body), version)


@pytest.mark.parametrize("version", range(12, 19))
def test_a_fetch_answer_is_read_as_kafka_python_encodes_it(version: int) -> None:
    body = memoryview(fetch_answer(version, tags=version >= 16))
    outcomes = read_fetch(version, body, IDS)
    first = outcomes[A0]
    assert isinstance(first, Fetched)
    assert (first.high_watermark, first.last_stable_offset, first.log_start_offset) == (9, 8, 1)
    assert first.aborted == (AbortedTransaction(70, 3), AbortedTransaction(71, 4))
    assert bytes(first.records) == b"xyz" * 99
    assert first.records.obj is body.obj
    assert isinstance(outcomes[A1], RetriableError)
    third = outcomes[B0]
    assert isinstance(third, Fetched)
    assert (third.aborted, bytes(third.records)) == ((), b"")


def test_a_cut_off_fetch_answer_is_refused_at_every_length() -> None:
    whole = fetch_answer(16)
    for length in range(10, len(whole) - 1):
        with pytest.raises(CorruptRecordsError):
            read_fetch(16, memoryview(whole[:length]), IDS)


def test_a_fetch_answer_with_another_topic_id_is_refused() -> None:
    with pytest.raises(CorruptRecordsError):
        read_fetch(16, memoryview(fetch_answer(16)), {"alpha": uuid4()})


def test_an_error_of_the_whole_answer_is_every_partitions_error() -> None:
    body = build_message(FetchResponse, 16, {"error_code": 29, "responses": [], "throttle_time_ms": 0, "session_id": 0})
    with pytest.raises(UsageError, match="READ on the topic"):
        read_fetch(16, memoryview(encoded(body, 16)), IDS)


# Metadata


def metadata_answer(*, leader: int = 1, partition_error: int = 0, topic_error: int = 0) -> Any:
    partition = {
        "error_code": partition_error,
        "partition_index": 0,
        "leader_id": leader,
        "leader_epoch": 4,
        "replica_nodes": [1, 2],
        "isr_nodes": [1],
        "offline_replicas": [2],
    }
    topic = {
        "error_code": topic_error,
        "name": "alpha",
        "topic_id": IDS["alpha"],
        "is_internal": False,
        "partitions": [] if topic_error else [partition],
    }
    body = {
        "brokers": [{"node_id": 1, "host": "h", "port": 9, "rack": None}],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [topic],
    }
    return MetadataResponse.decode(encoded(build_message(MetadataResponse, 12, body), 12), version=12)


def test_metadata_is_read() -> None:
    read = read_metadata(metadata_answer(), "boot:1")
    assert read.brokers == {1: Address("h", 9, 1)}
    assert (read.cluster_id, read.controller_id) == ("c", 1)
    topic = read.topics["alpha"]
    assert topic.topic_id == IDS["alpha"]
    assert (topic.partitions[0].leader, topic.partitions[0].in_sync, topic.partitions[0].offline) == (1, (1,), (2,))


def test_a_missing_topic_is_a_problem_that_names_the_cluster() -> None:
    read = read_metadata(metadata_answer(topic_error=3), "boot:1")
    assert "topic alpha on boot:1" in str(read.problems["alpha"])
    assert read.topics == {}


def test_all_some_and_no_topics() -> None:
    assert metadata_body(None)["topics"] is None
    assert metadata_body(())["topics"] == []
    assert [t["name"] for t in metadata_body(["a", "b"])["topics"]] == ["a", "b"]
    assert metadata_body(None)["allow_auto_topic_creation"] is False


def test_a_leader_is_known_until_it_is_doubted() -> None:
    cache = LeaderCache()
    assert cache.leader(A0) is None
    cache.update(read_metadata(metadata_answer(), "boot:1"))
    assert cache.leader(A0) == Address("h", 9, 1)
    assert cache.leader(A1) is None
    cache.doubt(A0)
    assert cache.leader(A0) is None
    cache.update(read_metadata(metadata_answer(), "boot:1"))
    assert cache.leader(A0) == Address("h", 9, 1)


def test_a_partition_without_a_leader_is_told_from_one_that_does_not_exist() -> None:
    cache = LeaderCache()
    cache.update(read_metadata(metadata_answer(partition_error=5), "boot:1"))
    assert cache.leader(A0) is None
    assert "LEADER_NOT_AVAILABLE" in str(cache.why_unknown(A0, "boot:1"))
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(cache.why_unknown(A1, "boot:1"))


def test_a_deleted_topic_is_forgotten() -> None:
    cache = LeaderCache()
    cache.update(read_metadata(metadata_answer(), "boot:1"))
    cache.update(read_metadata(metadata_answer(topic_error=3), "boot:1"))
    assert cache.leader(A0) is None


# Offsets, groups, transactions


def test_listed_offsets_are_read() -> None:
    partitions = [
        {"partition_index": 0, "error_code": 0, "timestamp": 5, "offset": 6, "leader_epoch": 7},
        {"partition_index": 1, "error_code": 6, "timestamp": -1, "offset": -1, "leader_epoch": -1},
    ]
    message = build_message(ListOffsetsResponse, 8, {"topics": [{"name": "alpha", "partitions": partitions}]})
    outcomes = read_list_offsets(ListOffsetsResponse.decode(encoded(message, 8), version=8))
    assert outcomes[A0] == ListedOffset(6, 5, 7)
    assert isinstance(outcomes[A1], RetriableError)


def test_offsets_to_commit_are_grouped_by_topic() -> None:
    topics = offset_topics({A0: GroupOffset(1, "m"), B0: GroupOffset(2), A1: GroupOffset(3)})
    assert [(t["name"], [p["committed_offset"] for p in t["partitions"]]) for t in topics] == [
        ("alpha", [1, 3]),
        ("bêta", [2]),
    ]
    assert topics[0]["partitions"][0]["committed_metadata"] == "m"


def test_all_offsets_of_a_group_are_asked_with_null_and_none_with_an_empty_list() -> None:
    assert offset_fetch_body("g", None, require_stable=True)["groups"][0]["topics"] is None
    assert offset_fetch_body("g", (), require_stable=True)["groups"][0]["topics"] == []
    assert offset_fetch_body("g", (), require_stable=False)["require_stable"] is False


def offset_fetch_answer(error_code: int = 0, group_error: int = 0) -> Any:
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "metadata": "m", "error_code": error_code},
        {"partition_index": 1, "committed_offset": -1, "metadata": "", "error_code": 0},
    ]
    group = {"group_id": "g", "topics": [{"name": "alpha", "partitions": partitions}], "error_code": group_error}
    message = build_message(OffsetFetchResponse, 8, {"groups": [group]})
    return OffsetFetchResponse.decode(encoded(message, 8), version=8)


def test_committed_offsets_are_read_and_absent_ones_left_out() -> None:
    assert read_offset_fetch(offset_fetch_answer(), "g") == {A0: GroupOffset(5, "m", -1)}


@pytest.mark.parametrize("answer", [{"error_code": 88}, {"group_error": 16}])
def test_an_unstable_offset_or_a_moved_coordinator_is_retried(answer: dict[str, int]) -> None:
    with pytest.raises(RetriableError):
        read_offset_fetch(offset_fetch_answer(**answer), "g")


def test_the_partition_that_explains_the_others_is_named() -> None:
    results = [{"partition_index": i, "partition_error_code": code} for i, code in enumerate((55, 90, 55))]
    topic = {"name": "alpha", "results_by_partition": results}
    message = build_message(AddPartitionsToTxnResponse, 3, {"results_by_topic_v3_and_below": [topic]})
    response = AddPartitionsToTxnResponse.decode(encoded(message, 3), version=3)
    with pytest.raises(FencedError, match="alpha-1"):
        raise_partition_errors(response, "tx")


def test_a_transaction_is_described() -> None:
    state = {
        "error_code": 0,
        "transactional_id": "tx",
        "transaction_state": "Ongoing",
        "transaction_timeout_ms": 1,
        "transaction_start_time_ms": 2,
        "producer_id": 3,
        "producer_epoch": 4,
        "topics": [{"topic": "alpha", "partitions": [0, 1]}],
    }
    message = build_message(DescribeTransactionsResponse, 0, {"transaction_states": [state]})
    read = read_description(DescribeTransactionsResponse.decode(encoded(message, 0), version=0))
    assert (read.state, read.producer_id, read.partitions) == ("Ongoing", 3, (A0, A1))


def test_configs_are_read() -> None:
    config = {"name": "n", "value": "v", "read_only": True, "config_source": 5, "is_sensitive": False}
    result = {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "t", "configs": [config]}
    message = build_message(DescribeConfigsResponse, 4, {"results": [result]})
    response = decode_response(DESCRIBE_CONFIGS.message, 4, memoryview(encoded(message, 4)))
    value = read_configs(response, "topic t")["n"]
    assert (value.value, value.is_default, value.read_only) == ("v", True, True)


def test_a_name_that_the_schema_lacks_is_refused() -> None:
    with pytest.raises(KeyError):
        build_message(FIND_COORDINATOR.message, 4, {"no_such_field": 1})
    with pytest.raises(KeyError):
        build_message(FETCH.message, 13, {"topics": [{"wrong": 1}]})

from __future__ import annotations

import pickle

import kafka.errors
import pytest

from sparkonce.errors import (
    AbortableError,
    Fault,
    FencedError,
    InDoubtError,
    RetriableError,
    UsageError,
)
from sparkonce.wire import apis
from sparkonce.wire.verdicts import CODES, FALLBACK, PER_API, Verdict, error_for, name_of, verdict_for

APIS = {value.name for value in vars(apis).values() if isinstance(value, apis.Api)}
TRANSACTIONAL = ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]


def test_every_code_of_kafka_python_is_in_the_table() -> None:
    known = {code for code in kafka.errors.kafka_errors if code is not None and code != 0}
    assert len(known) > 120
    assert known <= CODES.keys()


def test_the_table_has_no_gap_and_no_name_twice() -> None:
    assert CODES.keys() == {-1, *range(1, 134)}
    assert len({name for name, _ in CODES.values()}) == len(CODES)


def test_names_agree_with_kafka_python_where_it_did_not_choose_its_own() -> None:
    own = {-1, 6, 10, 17, 39}
    for code, error in kafka.errors.kafka_errors.items():
        if code in CODES and code not in own:
            assert name_of(code) == error.message


def test_special_rules_are_for_requests_that_exist() -> None:
    assert PER_API.keys() | FALLBACK.keys() <= APIS


@pytest.mark.parametrize("code", [3, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56])
def test_produce_sends_the_same_bytes_again(code: int) -> None:
    assert verdict_for("Produce", code) is Verdict.RETRIABLE


@pytest.mark.parametrize("code", [2, 45, 47, 48, 59, 87, 90, 120])
def test_produce_aborts(code: int) -> None:
    assert verdict_for("Produce", code) is Verdict.ABORTABLE


@pytest.mark.parametrize("code", [10, 18, 29, 30, 31, 53, 50, 35])
def test_produce_never_retries(code: int) -> None:
    assert verdict_for("Produce", code) is Verdict.USAGE


@pytest.mark.parametrize("api", TRANSACTIONAL)
@pytest.mark.parametrize("code", [47, 49, 90])
def test_the_coordinator_knows_who_is_fenced(api: str, code: int) -> None:
    assert verdict_for(api, code) is Verdict.FENCED


@pytest.mark.parametrize("code", [-1, 7, 13, 14, 15, 16, 56, 9_999])
def test_end_of_a_transaction_is_in_doubt_unless_the_answer_is_clear(code: int) -> None:
    assert verdict_for("EndTxn", code) is Verdict.IN_DOUBT


def test_end_of_a_transaction_with_a_clear_answer() -> None:
    assert verdict_for("EndTxn", 51) is Verdict.RETRIABLE
    assert verdict_for("EndTxn", 48) is Verdict.ABORTABLE
    assert verdict_for("EndTxn", 120) is Verdict.ABORTABLE
    assert verdict_for("EndTxn", 53) is Verdict.USAGE


@pytest.mark.parametrize("api", sorted(APIS))
@pytest.mark.parametrize("code", [29, 30, 31, 35, 53])
def test_what_a_person_must_grant_is_never_retried(api: str, code: int) -> None:
    assert verdict_for(api, code) in (Verdict.USAGE, Verdict.IN_DOUBT)


def test_waiting_is_enough() -> None:
    assert verdict_for("OffsetFetch", 88) is Verdict.RETRIABLE
    assert verdict_for("InitProducerId", 51) is Verdict.RETRIABLE


def test_a_request_that_must_not_be_repeated_is_in_doubt_after_a_time_out() -> None:
    for api in ("CreateTopics", "DeleteTopics", "CreatePartitions"):
        assert verdict_for(api, 7) is Verdict.IN_DOUBT


def test_an_unknown_code_is_never_retried() -> None:
    error = error_for("Fetch", 4_321, "t-0")
    assert isinstance(error, AbortableError)
    assert "UNKNOWN_ERROR_CODE (4321)" in str(error)


@pytest.mark.parametrize(
    ("api", "code", "kind", "said"),
    [
        ("Produce", 10, UsageError, "max.message.bytes"),
        ("Produce", 29, UsageError, "WRITE on the topic"),
        ("Fetch", 29, UsageError, "READ on the topic"),
        ("OffsetFetch", 30, UsageError, "DESCRIBE on the group"),
        ("EndTxn", 53, UsageError, "WRITE on the transactional id"),
        ("InitProducerId", 50, UsageError, "transaction.max.timeout.ms"),
        ("InitProducerId", 90, FencedError, "took over"),
        ("Metadata", 3, RetriableError, "create it"),
        ("EndTxn", 15, InDoubtError, "COORDINATOR_NOT_AVAILABLE (15)"),
    ],
)
def test_an_error_says_what_where_and_what_to_do(api: str, code: int, kind: type[Exception], said: str) -> None:
    error = error_for(api, code, "the-subject", "the broker's words.")
    assert type(error) is kind
    assert said in str(error)
    for part in (api, "the-subject", name_of(code), f"({code})", "the broker's words"):
        assert part in str(error)


def test_an_error_keeps_its_fault_when_it_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(error_for("Fetch", 1, "t-0")))  # noqa: S301 - our own bytes
    assert error.fault == Fault("Fetch", 1, "OFFSET_OUT_OF_RANGE", "t-0")
    assert isinstance(error, UsageError)

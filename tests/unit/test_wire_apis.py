from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sparkonce.wire
from sparkonce.errors import UsageError
from sparkonce.wire import TransactionProtocol, apis
from sparkonce.wire.apis import BrokerFeatures, choose_version

ALL = [value for value in vars(apis).values() if isinstance(value, apis.Api)]
V1, V2 = TransactionProtocol.V1, TransactionProtocol.V2


def features(versions: dict[int, tuple[int, int]], **finalized: int) -> BrokerFeatures:
    return BrokerFeatures(versions, {name.replace("_", "."): level for name, level in finalized.items()})


@pytest.mark.parametrize("api", ALL, ids=lambda api: f"{api.name}-{api.lowest}")
def test_kafka_python_speaks_every_version_we_ask_for(api: apis.Api) -> None:
    assert 0 <= api.lowest <= api.highest <= api.message.max_version


def test_versions_of_the_new_protocol_are_never_used_under_the_old_one() -> None:
    assert apis.produce_api(V1, transactional=True).highest == 11
    assert apis.txn_offset_commit_api(V1).highest == 4
    assert apis.end_txn_api(V1).highest == 4
    assert apis.ADD_PARTITIONS_TO_TXN.highest == 3


def test_versions_of_the_old_protocol_are_never_used_under_the_new_one() -> None:
    assert apis.produce_api(V2, transactional=True).lowest == 12
    assert apis.txn_offset_commit_api(V2).lowest == 5
    assert apis.end_txn_api(V2).lowest == 5


def test_records_outside_of_transactions_do_not_care() -> None:
    assert apis.produce_api(V1, transactional=False) == apis.produce_api(V2, transactional=False) == apis.PRODUCE


def test_only_what_ends_or_changes_something_is_not_repeatable() -> None:
    names = {api.name for api in ALL if not api.repeatable}
    assert names == {"EndTxn", "CreateTopics", "DeleteTopics", "CreatePartitions"}


@pytest.mark.parametrize(("level", "expected"), [(None, V1), (0, V1), (1, V1), (2, V2), (3, V2)])
def test_the_finalized_feature_decides_the_protocol(level: int | None, expected: TransactionProtocol) -> None:
    finalized = {} if level is None else {"transaction.version": level}
    assert BrokerFeatures({}, finalized).transaction_protocol is expected


def api_versions_response(epoch: int) -> Any:
    return SimpleNamespace(
        api_keys=[SimpleNamespace(api_key=0, min_version=3, max_version=13)],
        finalized_features_epoch=epoch,
        finalized_features=[SimpleNamespace(name="transaction.version", max_version_level=2)],
    )


def test_features_are_read() -> None:
    read = apis.read_features(api_versions_response(epoch=7))
    assert read.api_versions == {0: (3, 13)}
    assert read.transaction_protocol is V2


def test_features_of_an_unknown_epoch_are_not_believed() -> None:
    assert apis.read_features(api_versions_response(epoch=-1)).transaction_protocol is V1


def test_the_highest_common_version_is_chosen() -> None:
    assert choose_version(apis.PRODUCE, features({0: (0, 12)}), "b") == 12
    assert choose_version(apis.PRODUCE, features({0: (0, 99)}), "b") == 13


@pytest.mark.parametrize("offered", [{}, {0: (0, 8)}, {0: (14, 20)}])
def test_no_common_version_is_an_error_that_names_the_broker(offered: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(UsageError, match=r"broker 7 at h:1.*Produce.*3\.6"):
        choose_version(apis.PRODUCE, features(offered), "broker 7 at h:1")


def test_an_old_broker_is_refused() -> None:
    with pytest.raises(UsageError, match=r"older than Apache Kafka 3\.6"):
        apis.require_supported_broker(features({3: (0, 12), 24: (0, 3)}), "h:1")
    apis.require_supported_broker(features({3: (0, 12), 24: (0, 4)}), "h:1")


def test_a_controller_is_not_taken_for_an_old_broker() -> None:
    with pytest.raises(UsageError, match="controller"):
        apis.require_supported_broker(features({1: (0, 18)}), "h:1")


def test_only_one_module_touches_what_kafka_python_does_not_promise() -> None:
    folder = Path(sparkonce.wire.__path__[0])
    private = re.compile(r"kafka\.(?!protocol\.(admin|consumer|metadata|producer|sasl)\b)\w+")
    offenders = {
        path.name
        for path in folder.glob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith(("from kafka", "import kafka")) and private.search(line)
    }
    assert offenders == {"kafka_python.py"}

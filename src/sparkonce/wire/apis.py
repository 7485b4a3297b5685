"""The requests that this package sends, with the versions it may use: one table.

Which transaction protocol a cluster speaks decides between some of them (KIP-890); the newer versions must never be
used while the finalized feature `transaction.version` is below 2. Pure: knows no connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeQuorumRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from sparkonce.errors import Fault, UsageError


class TransactionProtocol(Enum):
    """How transactions are run: with partitions added by requests of their own (V1), or implicitly (V2, KIP-890)."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True, slots=True)
class Api:
    """One kind of request in the versions that we speak."""

    name: str
    message: Any
    lowest: int
    highest: int
    repeatable: bool = True
    """Whether sending it again after a lost answer is harmless. If not, a lost answer leaves us in doubt."""

    @property
    def key(self) -> int:
        """The number of the request in the protocol."""
        return int(self.message.API_KEY)


# 3 is spoken by every broker since 2.4 and holds all that we read; 4 differs only in features of level 0.
API_VERSIONS = Api("ApiVersions", ApiVersionsRequest, 3, 3)
SASL_HANDSHAKE = Api("SaslHandshake", SaslHandshakeRequest, 1, 1)
SASL_AUTHENTICATE = Api("SaslAuthenticate", SaslAuthenticateRequest, 1, 2)
METADATA = Api("Metadata", MetadataRequest, 12, 13)
FIND_COORDINATOR = Api("FindCoordinator", FindCoordinatorRequest, 4, 6)
# All three are flexible versions with one layout; from 13 on topics are named by id (KIP-516), so that a topic that
# was deleted and made anew is noticed instead of being written to.
PRODUCE = Api("Produce", ProduceRequest, 9, 13)
PRODUCE_V1 = Api("Produce", ProduceRequest, 9, 11)
PRODUCE_V2 = Api("Produce", ProduceRequest, 12, 13)
FETCH = Api("Fetch", FetchRequest, 12, 18)
LIST_OFFSETS = Api("ListOffsets", ListOffsetsRequest, 7, 10)
# 10 names topics by id, which the offsets of a deleted topic no longer have.
OFFSET_COMMIT = Api("OffsetCommit", OffsetCommitRequest, 8, 9)
OFFSET_FETCH = Api("OffsetFetch", OffsetFetchRequest, 8, 9)
# 6 belongs to KIP-939, which no released broker completes.
INIT_PRODUCER_ID = Api("InitProducerId", InitProducerIdRequest, 4, 5)
# From 4 on the request is for brokers only.
ADD_PARTITIONS_TO_TXN = Api("AddPartitionsToTxn", AddPartitionsToTxnRequest, 3, 3)
ADD_OFFSETS_TO_TXN = Api("AddOffsetsToTxn", AddOffsetsToTxnRequest, 3, 4)
TXN_OFFSET_COMMIT_V1 = Api("TxnOffsetCommit", TxnOffsetCommitRequest, 3, 4)
TXN_OFFSET_COMMIT_V2 = Api("TxnOffsetCommit", TxnOffsetCommitRequest, 5, 5)
END_TXN_V1 = Api("EndTxn", EndTxnRequest, 3, 4, repeatable=False)
END_TXN_V2 = Api("EndTxn", EndTxnRequest, 5, 5, repeatable=False)
DESCRIBE_TRANSACTIONS = Api("DescribeTransactions", DescribeTransactionsRequest, 0, 0)
LIST_TRANSACTIONS = Api("ListTransactions", ListTransactionsRequest, 0, 1)
DESCRIBE_PRODUCERS = Api("DescribeProducers", DescribeProducersRequest, 0, 0)
LIST_GROUPS = Api("ListGroups", ListGroupsRequest, 4, 5)
# From 6 on a group that does not exist is an error, and nothing is said about what would be allowed.
DESCRIBE_GROUPS = Api("DescribeGroups", DescribeGroupsRequest, 5, 5)
DESCRIBE_QUORUM = Api("DescribeQuorum", DescribeQuorumRequest, 1, 2)
DESCRIBE_CONFIGS = Api("DescribeConfigs", DescribeConfigsRequest, 4, 4)
CREATE_TOPICS = Api("CreateTopics", CreateTopicsRequest, 7, 7, repeatable=False)
DELETE_TOPICS = Api("DeleteTopics", DeleteTopicsRequest, 6, 6, repeatable=False)
CREATE_PARTITIONS = Api("CreatePartitions", CreatePartitionsRequest, 3, 3, repeatable=False)

# Kafka 3.6 is the first to check that a partition belongs to the transaction it is written in; it is also the first
# that offers version 4 of this request.
_MARK_OF_3_6 = (ADD_PARTITIONS_TO_TXN.key, 4)


def produce_api(protocol: TransactionProtocol, *, transactional: bool) -> Api:
    """The Produce versions that may be used."""
    if not transactional:
        return PRODUCE
    return PRODUCE_V2 if protocol is TransactionProtocol.V2 else PRODUCE_V1


def txn_offset_commit_api(protocol: TransactionProtocol) -> Api:
    """The TxnOffsetCommit versions that may be used."""
    return TXN_OFFSET_COMMIT_V2 if protocol is TransactionProtocol.V2 else TXN_OFFSET_COMMIT_V1


def end_txn_api(protocol: TransactionProtocol) -> Api:
    """The EndTxn versions that may be used."""
    return END_TXN_V2 if protocol is TransactionProtocol.V2 else END_TXN_V1


@dataclass(frozen=True, slots=True)
class BrokerFeatures:
    """What one broker said about itself: request versions, and the cluster's finalized features."""

    api_versions: Mapping[int, tuple[int, int]]
    finalized: Mapping[str, int]

    @property
    def transaction_protocol(self) -> TransactionProtocol:
        """The transaction protocol of the cluster."""
        level = self.finalized.get("transaction.version", 0)
        return TransactionProtocol.V2 if level >= 2 else TransactionProtocol.V1


def read_features(response: Any) -> BrokerFeatures:
    """Read an ApiVersions response."""
    versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    # An epoch of -1 means that the broker does not know the finalized features yet.
    known = response.finalized_features_epoch >= 0
    finalized = {f.name: f.max_version_level for f in response.finalized_features or ()} if known else {}
    return BrokerFeatures(versions, finalized)


def require_supported_broker(features: BrokerFeatures, broker: str) -> None:
    """Raise a UsageError for a broker that is too old, or that is no broker but a controller."""
    if METADATA.key not in features.api_versions:
        raise UsageError(f"{broker} is not a broker's listener (a controller's?); use a broker's address")
    key, needed = _MARK_OF_3_6
    if features.api_versions.get(key, (0, -1))[1] < needed:
        raise UsageError(f"{broker} is older than Apache Kafka 3.6; sparkonce needs brokers of 3.6 or later")


def choose_version(api: Api, features: BrokerFeatures, broker: str) -> int:
    """The highest version of a request that both sides speak."""
    low, high = features.api_versions.get(api.key, (0, -1))
    version = min(api.highest, high)
    if version < max(api.lowest, low):
        offered = f"offers versions {low} to {high}" if high >= 0 else "does not offer it"
        raise UsageError(
            f"{broker} cannot be used: {api.name} is needed in version {api.lowest} to {api.highest}, the broker "
            f"{offered}. Apache Kafka 3.6 or later is needed",
            fault=Fault(api.name, 35, "UNSUPPORTED_VERSION", broker),
        )
    return version

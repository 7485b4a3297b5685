"""Every error code of the Kafka protocol, with its name and what to do about it: one table, read by one function.

A verdict is decided by the code and, where the same code means different things, by the request that was answered.
Nothing here talks to a broker. Sources: Kafka's `Errors` enumeration (4.3) and the rules of KIP-98, KIP-360, KIP-447,
KIP-588 and KIP-890.
"""

from __future__ import annotations

from enum import Enum

from sparkonce.errors import (
    AbortableError,
    Fault,
    FencedError,
    InDoubtError,
    RetriableError,
    SparkonceError,
    UsageError,
)
from sparkonce.wire.remedies import remedy_for


class Verdict(Enum):
    """What the reader of an error has to do; the value is the error class that says so."""

    RETRIABLE = RetriableError
    ABORTABLE = AbortableError
    FENCED = FencedError
    IN_DOUBT = InDoubtError
    USAGE = UsageError


_R, _A, _F, _D, _U = Verdict.RETRIABLE, Verdict.ABORTABLE, Verdict.FENCED, Verdict.IN_DOUBT, Verdict.USAGE

CODES: dict[int, tuple[str, Verdict]] = {
    -1: ("UNKNOWN_SERVER_ERROR", _A),
    1: ("OFFSET_OUT_OF_RANGE", _U),
    2: ("CORRUPT_MESSAGE", _A),
    3: ("UNKNOWN_TOPIC_OR_PARTITION", _R),
    4: ("INVALID_FETCH_SIZE", _U),
    5: ("LEADER_NOT_AVAILABLE", _R),
    6: ("NOT_LEADER_OR_FOLLOWER", _R),
    7: ("REQUEST_TIMED_OUT", _R),
    8: ("BROKER_NOT_AVAILABLE", _R),
    9: ("REPLICA_NOT_AVAILABLE", _R),
    10: ("MESSAGE_TOO_LARGE", _U),
    11: ("STALE_CONTROLLER_EPOCH", _R),
    12: ("OFFSET_METADATA_TOO_LARGE", _U),
    13: ("NETWORK_EXCEPTION", _R),
    14: ("COORDINATOR_LOAD_IN_PROGRESS", _R),
    15: ("COORDINATOR_NOT_AVAILABLE", _R),
    16: ("NOT_COORDINATOR", _R),
    17: ("INVALID_TOPIC_EXCEPTION", _U),
    18: ("RECORD_LIST_TOO_LARGE", _U),
    19: ("NOT_ENOUGH_REPLICAS", _R),
    20: ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", _R),
    21: ("INVALID_REQUIRED_ACKS", _U),
    22: ("ILLEGAL_GENERATION", _A),
    23: ("INCONSISTENT_GROUP_PROTOCOL", _U),
    24: ("INVALID_GROUP_ID", _U),
    25: ("UNKNOWN_MEMBER_ID", _A),
    26: ("INVALID_SESSION_TIMEOUT", _U),
    27: ("REBALANCE_IN_PROGRESS", _A),
    28: ("INVALID_COMMIT_OFFSET_SIZE", _U),
    29: ("TOPIC_AUTHORIZATION_FAILED", _U),
    30: ("GROUP_AUTHORIZATION_FAILED", _U),
    31: ("CLUSTER_AUTHORIZATION_FAILED", _U),
    32: ("INVALID_TIMESTAMP", _U),
    33: ("UNSUPPORTED_SASL_MECHANISM", _U),
    34: ("ILLEGAL_SASL_STATE", _U),
    35: ("UNSUPPORTED_VERSION", _U),
    36: ("TOPIC_ALREADY_EXISTS", _U),
    37: ("INVALID_PARTITIONS", _U),
    38: ("INVALID_REPLICATION_FACTOR", _U),
    39: ("INVALID_REPLICA_ASSIGNMENT", _U),
    40: ("INVALID_CONFIG", _U),
    41: ("NOT_CONTROLLER", _R),
    42: ("INVALID_REQUEST", _U),
    43: ("UNSUPPORTED_FOR_MESSAGE_FORMAT", _U),
    44: ("POLICY_VIOLATION", _U),
    45: ("OUT_OF_ORDER_SEQUENCE_NUMBER", _A),
    46: ("DUPLICATE_SEQUENCE_NUMBER", _A),
    47: ("INVALID_PRODUCER_EPOCH", _A),
    48: ("INVALID_TXN_STATE", _A),
    49: ("INVALID_PRODUCER_ID_MAPPING", _A),
    50: ("INVALID_TRANSACTION_TIMEOUT", _U),
    51: ("CONCURRENT_TRANSACTIONS", _R),
    52: ("TRANSACTION_COORDINATOR_FENCED", _A),
    53: ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", _U),
    54: ("SECURITY_DISABLED", _U),
    55: ("OPERATION_NOT_ATTEMPTED", _A),
    56: ("KAFKA_STORAGE_ERROR", _R),
    57: ("LOG_DIR_NOT_FOUND", _U),
    58: ("SASL_AUTHENTICATION_FAILED", _U),
    59: ("UNKNOWN_PRODUCER_ID", _A),
    60: ("REASSIGNMENT_IN_PROGRESS", _U),
    61: ("DELEGATION_TOKEN_AUTH_DISABLED", _U),
    62: ("DELEGATION_TOKEN_NOT_FOUND", _U),
    63: ("DELEGATION_TOKEN_OWNER_MISMATCH", _U),
    64: ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", _U),
    65: ("DELEGATION_TOKEN_AUTHORIZATION_FAILED", _U),
    66: ("DELEGATION_TOKEN_EXPIRED", _U),
    67: ("INVALID_PRINCIPAL_TYPE", _U),
    68: ("NON_EMPTY_GROUP", _U),
    69: ("GROUP_ID_NOT_FOUND", _U),
    70: ("FETCH_SESSION_ID_NOT_FOUND", _R),
    71: ("INVALID_FETCH_SESSION_EPOCH", _R),
    72: ("LISTENER_NOT_FOUND", _R),
    73: ("TOPIC_DELETION_DISABLED", _U),
    74: ("FENCED_LEADER_EPOCH", _R),
    75: ("UNKNOWN_LEADER_EPOCH", _R),
    76: ("UNSUPPORTED_COMPRESSION_TYPE", _U),
    77: ("STALE_BROKER_EPOCH", _A),
    78: ("OFFSET_NOT_AVAILABLE", _R),
    79: ("MEMBER_ID_REQUIRED", _A),
    80: ("PREFERRED_LEADER_NOT_AVAILABLE", _R),
    81: ("GROUP_MAX_SIZE_REACHED", _U),
    82: ("FENCED_INSTANCE_ID", _A),
    83: ("ELIGIBLE_LEADERS_NOT_AVAILABLE", _R),
    84: ("ELECTION_NOT_NEEDED", _A),
    85: ("NO_REASSIGNMENT_IN_PROGRESS", _A),
    86: ("GROUP_SUBSCRIBED_TO_TOPIC", _U),
    87: ("INVALID_RECORD", _A),
    88: ("UNSTABLE_OFFSET_COMMIT", _R),
    89: ("THROTTLING_QUOTA_EXCEEDED", _R),
    90: ("PRODUCER_FENCED", _A),
    91: ("RESOURCE_NOT_FOUND", _U),
    92: ("DUPLICATE_RESOURCE", _U),
    93: ("UNACCEPTABLE_CREDENTIAL", _U),
    94: ("INCONSISTENT_VOTER_SET", _A),
    95: ("INVALID_UPDATE_VERSION", _U),
    96: ("FEATURE_UPDATE_FAILED", _A),
    97: ("PRINCIPAL_DESERIALIZATION_FAILURE", _U),
    98: ("SNAPSHOT_NOT_FOUND", _A),
    99: ("POSITION_OUT_OF_RANGE", _A),
    100: ("UNKNOWN_TOPIC_ID", _R),
    101: ("DUPLICATE_BROKER_REGISTRATION", _A),
    102: ("BROKER_ID_NOT_REGISTERED", _A),
    103: ("INCONSISTENT_TOPIC_ID", _R),
    104: ("INCONSISTENT_CLUSTER_ID", _U),
    105: ("TRANSACTIONAL_ID_NOT_FOUND", _U),
    106: ("FETCH_SESSION_TOPIC_ID_ERROR", _R),
    107: ("INELIGIBLE_REPLICA", _A),
    108: ("NEW_LEADER_ELECTED", _A),
    109: ("OFFSET_MOVED_TO_TIERED_STORAGE", _A),
    110: ("FENCED_MEMBER_EPOCH", _A),
    111: ("UNRELEASED_INSTANCE_ID", _A),
    112: ("UNSUPPORTED_ASSIGNOR", _U),
    113: ("STALE_MEMBER_EPOCH", _A),
    114: ("MISMATCHED_ENDPOINT_TYPE", _U),
    115: ("UNSUPPORTED_ENDPOINT_TYPE", _U),
    116: ("UNKNOWN_CONTROLLER_ID", _A),
    117: ("UNKNOWN_SUBSCRIPTION_ID", _A),
    118: ("TELEMETRY_TOO_LARGE", _A),
    119: ("INVALID_REGISTRATION", _A),
    120: ("TRANSACTION_ABORTABLE", _A),
    121: ("INVALID_RECORD_STATE", _A),
    122: ("SHARE_SESSION_NOT_FOUND", _R),
    123: ("INVALID_SHARE_SESSION_EPOCH", _R),
    124: ("FENCED_STATE_EPOCH", _A),
    125: ("INVALID_VOTER_KEY", _U),
    126: ("DUPLICATE_VOTER", _U),
    127: ("VOTER_NOT_FOUND", _U),
    128: ("INVALID_REGULAR_EXPRESSION", _U),
    129: ("REBOOTSTRAP_REQUIRED", _R),
    130: ("STREAMS_INVALID_TOPOLOGY", _U),
    131: ("STREAMS_INVALID_TOPOLOGY_EPOCH", _A),
    132: ("STREAMS_TOPOLOGY_FENCED", _A),
    133: ("SHARE_SESSION_LIMIT_REACHED", _R),
}

# 47 and 90 reach a sending task both when another process took over and when the broker expired the transaction.
# The task cannot know which: it aborts. The driver's own requests go to the coordinator, which does know, and there
# the answer is final for the identity that was sent. 49 means that the id is held under another producer id.
_HELD_BY_ANOTHER = {47: _F, 49: _F, 90: _F}

_NOT_REPEATABLE = {7: _D, 13: _D}

PER_API: dict[str, dict[int, Verdict]] = {
    # Repeated here in full, so that a change of the general table cannot silently change what a sender does.
    "Produce": (
        dict.fromkeys((3, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56), _R)
        | dict.fromkeys((2, 45, 47, 48, 59, 87, 90, 120), _A)
        # What is too large now is too large again: running the micro-batch once more cannot help.
        | dict.fromkeys((10, 18, 29, 30, 31, 35, 50, 53), _U)
    ),
    "InitProducerId": _HELD_BY_ANOTHER,
    "AddPartitionsToTxn": _HELD_BY_ANOTHER,
    "AddOffsetsToTxn": _HELD_BY_ANOTHER,
    "TxnOffsetCommit": _HELD_BY_ANOTHER,
    # The coordinator answers 14, 15 and 16 also when the decision was already written to its log and only what came
    # after it failed: the outcome is unknown. 51 says that this request changed nothing.
    "EndTxn": _HELD_BY_ANOTHER | {48: _A, 51: _R, 120: _A} | dict.fromkeys((31, 34, 35, 42, 53, 54, 58), _U),
    "CreateTopics": _NOT_REPEATABLE,
    "CreatePartitions": _NOT_REPEATABLE | {3: _U},
    "DeleteTopics": _NOT_REPEATABLE | {3: _U, 100: _U},
    "DescribeConfigs": {3: _U},
}

# What a code means that neither table names (or, for EndTxn, that its own table does not name).
FALLBACK: dict[str, Verdict] = {"EndTxn": _D}
_UNKNOWN = Verdict.ABORTABLE

LEADER_MOVED = frozenset({3, 5, 6, 9, 56, 72, 74, 75, 100, 103})
"""Codes after which the leader of a topic partition must be looked up again."""

COORDINATOR_MOVED = frozenset({15, 16})
"""Codes after which the coordinator of a group or transactional id must be looked up again."""

UNKNOWN_TOPIC_OR_PARTITION = 3


def name_of(code: int) -> str:
    """The protocol's name of an error code."""
    return CODES[code][0] if code in CODES else "UNKNOWN_ERROR_CODE"


def verdict_for(api: str, code: int) -> Verdict:
    """What to do when the broker answers a request with this code."""
    specific = PER_API.get(api, {})
    if code in specific:
        return specific[code]
    if api in FALLBACK:
        return FALLBACK[api]
    return CODES[code][1] if code in CODES else _UNKNOWN


def error_for(api: str, code: int, subject: str, detail: str | None = None) -> SparkonceError:
    """The error to raise for an answer: verdict as class, and a text that says what, where and what to do."""
    error_class: type[SparkonceError] = verdict_for(api, code).value
    said = f": {detail.rstrip('.')}" if detail else ""
    remedy = remedy_for(api, code, subject)
    text = f"{api} for {subject} failed with {name_of(code)} ({code}){said}"
    return error_class(f"{text}. {remedy}" if remedy else text, fault=Fault(api, code, name_of(code), subject))

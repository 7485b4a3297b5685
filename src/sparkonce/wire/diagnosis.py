"""What a cluster says about itself, its groups, and what this client may do there. For people; changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from sparkonce.deadline import Deadline
from sparkonce.errors import SparkonceError
from sparkonce.wire.apis import (
    API_VERSIONS,
    DESCRIBE_GROUPS,
    DESCRIBE_QUORUM,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    METADATA,
)
from sparkonce.wire.client import Client, CoordinatorKind
from sparkonce.wire.cluster import metadata_body
from sparkonce.wire.connection import Address
from sparkonce.wire.verdicts import error_for

_INVALID_TRANSACTION_TIMEOUT = 50
_ID_NOT_ALLOWED = 53
_NOT_SAID = 31
_QUORUM_TOPIC = "__cluster_metadata"


class Operation(IntEnum):
    """What a client may be allowed to do (ACL operations); the numbers are the protocol's."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a coordinator's list. The state is Empty for one that only keeps offsets."""

    group: str
    state: str
    coordinator_id: int

    @property
    def has_members(self) -> bool:
        """Whether consumers belong to it now."""
        return self.state.lower() not in ("empty", "dead")


@dataclass(frozen=True, slots=True)
class SupportedFeatures:
    """What one broker's software could do, and what the cluster has agreed on; the numbers are feature levels."""

    supported: Mapping[str, int]
    finalized: Mapping[str, int]


def supported_features(client: Client, address: Address, deadline: Deadline | None = None) -> SupportedFeatures:
    """Ask one broker, without retries: whether it answers is part of the question."""
    until = client.deadline(deadline)
    body = {"client_software_name": "sparkonce", "client_software_version": "1"}
    response = client.ask(address, API_VERSIONS, body, until)
    if response.error_code:
        raise error_for(API_VERSIONS.name, response.error_code, str(address))
    return read_supported_features(response)


def read_supported_features(response: Any) -> SupportedFeatures:
    """Read an ApiVersions response."""
    known = response.finalized_features_epoch >= 0
    return SupportedFeatures(
        {f.name: f.max_version for f in response.supported_features or ()},
        {f.name: f.max_version_level for f in response.finalized_features or ()} if known else {},
    )


def list_groups(client: Client, deadline: Deadline | None = None) -> dict[str, GroupListing]:
    """The groups of all coordinators, as far as this client may see them."""
    until = client.deadline(deadline)
    found: dict[str, GroupListing] = {}
    for address in client.metadata((), until).brokers.values():
        for listing in client.retried(until, partial(_list_groups_on, client, address, until)):
            found[listing.group] = listing
    return found


def _list_groups_on(client: Client, address: Address, deadline: Deadline) -> list[GroupListing]:
    response = client.ask(address, LIST_GROUPS, {"states_filter": []}, deadline)
    if response.error_code:
        raise error_for(LIST_GROUPS.name, response.error_code, str(address))
    return [GroupListing(g.group_id, g.group_state, address.broker_id) for g in response.groups]


def group_operations(client: Client, group: str, deadline: Deadline | None = None) -> frozenset[Operation] | None:
    """What this client may do with a group, which need not exist; None if the broker does not say."""
    until = client.deadline(deadline)
    body = {"groups": [group], "include_authorized_operations": True}

    def attempt(address: Address) -> frozenset[Operation] | None:
        found = client.ask(address, DESCRIBE_GROUPS, body, until).groups[0]
        if found.error_code:
            raise error_for(DESCRIBE_GROUPS.name, found.error_code, f"group {group}")
        return operations_of(found.authorized_operations)

    return client.with_coordinator(CoordinatorKind.GROUP, group, until, attempt)


def topic_operations(
    client: Client, topics: Sequence[str], deadline: Deadline | None = None
) -> dict[str, frozenset[Operation] | SparkonceError | None]:
    """What this client may do with topics, or why it is not told; None if the broker does not say."""
    until = client.deadline(deadline)
    body = metadata_body(topics) | {"include_topic_authorized_operations": True}
    response = client.retried(until, lambda: client.ask_anyone(METADATA, body, until))
    return {
        topic.name: error_for(METADATA.name, topic.error_code, f"topic {topic.name}")
        if topic.error_code
        else operations_of(topic.authorized_operations)
        for topic in response.topics
    }


def operations_of(numbers: Collection[int] | None) -> frozenset[Operation] | None:
    """From the bits that kafka-python found set; None if the broker did not say: that is a bit too."""
    if numbers is None or _NOT_SAID in numbers:
        return None
    return frozenset(operation for operation in Operation if operation in numbers)


def may_write_transactional_id(client: Client, transactional_id: str, deadline: Deadline | None = None) -> bool:
    """Whether this client may run transactions under the id.

    No request answers that without doing something, but the coordinator checks the permission first and the timeout
    next, and only then looks for the id: an impossible timeout is refused before anything changes (tried on 4.3).
    """
    until = client.deadline(deadline)
    body = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": 0,
        "producer_id": -1,
        "producer_epoch": -1,
    }

    def attempt(address: Address) -> bool:
        code = client.ask(address, INIT_PRODUCER_ID, body, until).error_code
        if code in (_INVALID_TRANSACTION_TIMEOUT, _ID_NOT_ALLOWED):
            return bool(code == _INVALID_TRANSACTION_TIMEOUT)
        raise error_for(INIT_PRODUCER_ID.name, code, f"transactional id {transactional_id}")

    return client.with_coordinator(CoordinatorKind.TRANSACTION, transactional_id, until, attempt)


def cluster_time_ms(client: Client, deadline: Deadline | None = None) -> int | None:
    """The clock of the active controller (KIP-836); None if it is not said."""
    until = client.deadline(deadline)
    body = {"topics": [{"topic_name": _QUORUM_TOPIC, "partitions": [{"partition_index": 0}]}]}
    return read_leader_time(client.retried(until, lambda: client.ask_anyone(DESCRIBE_QUORUM, body, until)))


def read_leader_time(response: Any) -> int | None:
    """Read a DescribeQuorum response: the leader has always just caught up with itself."""
    if response.error_code:
        raise error_for(DESCRIBE_QUORUM.name, response.error_code, "cluster")
    quorum = response.topics[0].partitions[0]
    if quorum.error_code:
        raise error_for(DESCRIBE_QUORUM.name, quorum.error_code, "cluster")
    times = _times_of(quorum.current_voters, quorum.leader_id)
    return times[0] if times and times[0] > 0 else None


def _times_of(voters: Collection[Any], leader_id: int) -> list[int]:
    return [int(voter.last_caught_up_timestamp) for voter in voters if voter.replica_id == leader_id]

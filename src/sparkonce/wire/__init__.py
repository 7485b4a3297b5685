"""Kafka's protocol: one client per process, typed calls, errors by verdict. Knows no Spark and no record format."""

from sparkonce.deadline import Deadline
from sparkonce.wire.admin import (
    ConfigValue,
    NewTopic,
    broker_configs,
    create_partitions,
    create_topics,
    delete_topics,
    topic_configs,
)
from sparkonce.wire.apis import TransactionProtocol
from sparkonce.wire.client import Client
from sparkonce.wire.cluster import ClusterMetadata, Partition, Topic
from sparkonce.wire.connection import Address
from sparkonce.wire.fetch import (
    AbortedTransaction,
    Fetched,
    FetchFrom,
    FetchSettings,
    Isolation,
    fetch,
    send_fetch,
)
from sparkonce.wire.groups import GroupOffset, commit_offsets, committed_offsets
from sparkonce.wire.handles import Handle, wait_any
from sparkonce.wire.inspection import (
    ProducerState,
    TransactionDescription,
    TransactionListing,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from sparkonce.wire.offsets import ListedOffset, OffsetAt, list_offsets
from sparkonce.wire.produce import Appended, ProduceSettings, produce, send_produce
from sparkonce.wire.transactions import (
    add_offsets,
    add_partitions,
    commit_offsets_in_transaction,
    end_transaction,
    init_producer,
)

__all__ = [
    "AbortedTransaction",
    "Address",
    "Appended",
    "Client",
    "ClusterMetadata",
    "ConfigValue",
    "Deadline",
    "FetchFrom",
    "FetchSettings",
    "Fetched",
    "GroupOffset",
    "Handle",
    "Isolation",
    "ListedOffset",
    "NewTopic",
    "OffsetAt",
    "Partition",
    "ProduceSettings",
    "ProducerState",
    "Topic",
    "TransactionDescription",
    "TransactionListing",
    "TransactionProtocol",
    "add_offsets",
    "add_partitions",
    "broker_configs",
    "commit_offsets",
    "commit_offsets_in_transaction",
    "committed_offsets",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "describe_producers",
    "describe_transaction",
    "end_transaction",
    "fetch",
    "init_producer",
    "list_offsets",
    "list_transactions",
    "produce",
    "send_fetch",
    "send_produce",
    "topic_configs",
    "wait_any",
]

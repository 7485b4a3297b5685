"""What a person can do about an error code, as sentences. Data only: verdicts are given elsewhere."""

from __future__ import annotations

_REMEDIES: dict[int, str] = {
    1: "The offset is outside of what the partition still holds: it was deleted by retention or the topic was made "
    "anew. Start from another offset.",
    3: "The topic or partition does not exist on this cluster; create it or correct its name.",
    10: "The record batch is larger than the topic accepts after compression; raise the topic's max.message.bytes or "
    "send smaller record batches.",
    12: "The broker's offset.metadata.max.bytes bounds the metadata of a committed offset.",
    18: "The request is larger than a log segment; raise the topic's segment.bytes or send smaller record batches.",
    19: "Fewer replicas are in sync than min.insync.replicas asks for; look for brokers that are down.",
    20: "Fewer replicas are in sync than min.insync.replicas asks for; look for brokers that are down.",
    32: "A record's timestamp is outside of what the topic's message.timestamp.before.max.ms and after.max.ms allow.",
    33: "Set sasl.mechanism to one that the listener offers.",
    34: "The listener expects SASL; set security.protocol to SASL_SSL or SASL_PLAINTEXT.",
    35: "The broker does not know this version of the request; Apache Kafka 3.6 or later is needed.",
    36: "Choose another name or delete the topic first.",
    44: "The broker's policy refuses it; ask whoever runs the cluster.",
    47: "Another process took over the transactional id, or the broker expired the transaction.",
    48: "The transaction is not open any more, most likely because the broker expired it; raise the transaction "
    "timeout if the batch needs longer.",
    49: "The transactional id now belongs to another producer id: another process took over, or the id expired "
    "(transactional.id.expiration.ms).",
    50: "The transaction timeout is longer than the brokers' transaction.max.timeout.ms (15 minutes by default); "
    "lower the timeout or raise transaction.max.timeout.ms.",
    58: "User name, password or certificate was refused; correct the credentials.",
    76: "The broker cannot read this compression; choose another.",
    90: "Another process took over the transactional id, or the broker expired the transaction.",
    100: "The topic was deleted, or made anew with the same name.",
    104: "The client was pointed at another cluster than before.",
    105: "No transaction with this id is known to the cluster.",
}

_RESOURCES: dict[int, str] = {29: "topic", 30: "group", 31: "cluster", 53: "transactional id"}

_ACL_OPERATIONS: dict[tuple[str, int], str] = {
    ("Produce", 29): "WRITE",
    ("Produce", 31): "IDEMPOTENT_WRITE",
    ("Produce", 53): "WRITE",
    ("Fetch", 29): "READ",
    ("ListOffsets", 29): "DESCRIBE",
    ("Metadata", 29): "DESCRIBE",
    ("OffsetCommit", 29): "READ",
    ("OffsetCommit", 30): "READ",
    ("OffsetFetch", 29): "DESCRIBE",
    ("OffsetFetch", 30): "DESCRIBE",
    ("FindCoordinator", 30): "DESCRIBE",
    ("FindCoordinator", 53): "DESCRIBE",
    ("InitProducerId", 31): "IDEMPOTENT_WRITE",
    ("InitProducerId", 53): "WRITE",
    ("AddPartitionsToTxn", 29): "WRITE",
    ("AddPartitionsToTxn", 53): "WRITE",
    ("AddOffsetsToTxn", 30): "READ",
    ("AddOffsetsToTxn", 53): "WRITE",
    ("TxnOffsetCommit", 29): "READ",
    ("TxnOffsetCommit", 30): "READ",
    ("TxnOffsetCommit", 53): "WRITE",
    ("EndTxn", 53): "WRITE",
    ("DescribeTransactions", 53): "DESCRIBE",
    ("DescribeProducers", 29): "READ",
    ("DescribeConfigs", 29): "DESCRIBE_CONFIGS",
    ("DescribeConfigs", 31): "DESCRIBE_CONFIGS",
    ("CreateTopics", 29): "CREATE",
    ("CreateTopics", 31): "CREATE",
    ("DeleteTopics", 29): "DELETE",
    ("CreatePartitions", 29): "ALTER",
}


def remedy_for(api: str, code: int, subject: str) -> str | None:
    """A sentence about what a person can change, or None where there is nothing to say."""
    if code in _RESOURCES:
        operation = _ACL_OPERATIONS.get((api, code), "the needed operation")
        return f"Grant this client's principal {operation} on the {_RESOURCES[code]} ({subject}) in the cluster's ACLs."
    return _REMEDIES.get(code)

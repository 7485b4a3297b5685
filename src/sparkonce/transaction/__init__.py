"""Kafka's transaction as the driver sees it: states, marker, recovery. Knows no Spark and no records."""

from sparkonce.transaction.decision import Candidate, is_committed
from sparkonce.transaction.kafka_transaction import KafkaTransaction, TransactionSettings
from sparkonce.transaction.marker import Marker, Owner, marker_group
from sparkonce.transaction.states import State

__all__ = [
    "Candidate",
    "KafkaTransaction",
    "Marker",
    "Owner",
    "State",
    "TransactionSettings",
    "is_committed",
    "marker_group",
]

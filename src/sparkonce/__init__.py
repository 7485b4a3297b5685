"""Exactly-once Kafka for PySpark."""

from sparkonce.errors import (
    AbortableError,
    CorruptRecordsError,
    FencedError,
    InDoubtError,
    RetriableError,
    SparkonceError,
    UsageError,
)

__all__ = [
    "AbortableError",
    "CorruptRecordsError",
    "FencedError",
    "InDoubtError",
    "RetriableError",
    "SparkonceError",
    "UsageError",
]

"""Exactly-once Kafka for PySpark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparkonce.errors import (
    AbortableError,
    CorruptRecordsError,
    FencedError,
    InDoubtError,
    RetriableError,
    SparkonceError,
    UsageError,
)

if TYPE_CHECKING:
    from sparkonce.spark import BatchReceipt, KafkaSink, KafkaSource, register, source_metrics

# Loaded on first use: the command line and the tools need neither Spark nor the compiled kernels.
_FROM_SPARK = ("BatchReceipt", "KafkaSink", "KafkaSource", "register", "source_metrics")

__all__ = [
    "AbortableError",
    "BatchReceipt",
    "CorruptRecordsError",
    "FencedError",
    "InDoubtError",
    "KafkaSink",
    "KafkaSource",
    "RetriableError",
    "SparkonceError",
    "UsageError",
    "register",
    "source_metrics",
]


def __getattr__(name: str) -> Any:
    if name in _FROM_SPARK:
        return getattr(import_module("sparkonce.spark"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

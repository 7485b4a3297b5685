"""Exactly-once Kafka for PySpark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparkonce.errors import (
    AbortableError,
    CorruptRecordsError,
    FencedError,
    InDoubtError,
    MissingMarkerError,
    RetriableError,
    SparkonceError,
    UsageError,
)

if TYPE_CHECKING:
    from sparkonce.participants import published_files
    from sparkonce.spark import (
        AtomicSinks,
        BatchReceipt,
        FileSink,
        KafkaSink,
        KafkaSource,
        MariaDBSink,
        PostgresSink,
        StoreSink,
        register,
        source_metrics,
    )

# Loaded on first use: the command line and the tools need neither Spark nor the compiled kernels.
_PLACES = {
    **dict.fromkeys(
        (
            "AtomicSinks",
            "BatchReceipt",
            "FileSink",
            "KafkaSink",
            "KafkaSource",
            "MariaDBSink",
            "PostgresSink",
            "StoreSink",
            "register",
            "source_metrics",
        ),
        "sparkonce.spark",
    ),
    "published_files": "sparkonce.participants",
}

__all__ = [
    "AbortableError",
    "AtomicSinks",
    "BatchReceipt",
    "CorruptRecordsError",
    "FencedError",
    "FileSink",
    "InDoubtError",
    "KafkaSink",
    "KafkaSource",
    "MariaDBSink",
    "MissingMarkerError",
    "PostgresSink",
    "RetriableError",
    "SparkonceError",
    "StoreSink",
    "UsageError",
    "published_files",
    "register",
    "source_metrics",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

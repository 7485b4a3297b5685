"""A cluster that does not answer is said so in seconds, with one readable sentence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.errors.exceptions.captured import PySparkException  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from sparkonce.devbroker.ports import free_ports

SECONDS = 60


def test_an_unreachable_broker(spark: SparkSession, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = {"kafka.bootstrap.servers": address, "subscribe": "orders"}
    message = rf"no bootstrap server could be used\. cannot connect to {address}.*Check bootstrap_servers"
    began = time.monotonic()
    with pytest.raises(PySparkException, match=message):
        spark.read.format("sparkonce").options(**options).load().collect()
    stream = spark.readStream.format("sparkonce").options(**options).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="1 second").start()
    with pytest.raises(PySparkException, match=message):
        query.awaitTermination(SECONDS)
    assert not query.isActive
    assert time.monotonic() - began < SECONDS

"""The shop of the documents' examples: a topic `orders` that all of them read, and topics that they write."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from sparkonce.devbroker import DevBroker
from sparkonce.pipeline import load
from sparkonce.pipeline.build import start
from sparkonce.spark.micro_batches import MicroBatchSink
from tests.broker.fetch_samples import producer_of, rows_by_librdkafka
from tests.documents import Example, localised

COUNT, PARTITIONS = 120, 2
SECONDS = 60
FIRST = datetime(2026, 11, 16, 10, tzinfo=UTC)
USERS, COUNTRIES = ("ann", "bob", "eve"), ("DE", "FR", "IN", "DE")


def order(number: int) -> dict[str, Any]:
    """One order; they are 15 seconds apart."""
    return {
        "id": number,
        "user": USERS[number % 3],
        "country": COUNTRIES[number % 4],
        "amount": float(number * 50 % 1000),  # Some are exactly at the bounds of the examples.
        "at": (FIRST + timedelta(seconds=15 * number)).isoformat().replace("+00:00", "Z"),
    }


ORDERS = [order(number) for number in range(COUNT) for _ in range(2 if number % 10 == 0 else 1)]
"""Every tenth order was sent twice."""


class Shop:
    """A broker with the topic `orders`."""

    def __init__(self, broker: DevBroker) -> None:
        self.broker = broker
        self._admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        if self._create("orders"):
            producer = producer_of(broker)
            for each in ORDERS:
                partition = USERS.index(each["user"]) % PARTITIONS
                producer.produce("orders", json.dumps(each).encode(), each["user"].encode(), partition=partition)
            assert producer.flush(SECONDS) == 0

    def send(self, topic: str, values: Iterable[bytes]) -> None:
        """Into an empty topic."""
        self.empty(topic)
        producer = producer_of(self.broker)
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(SECONDS) == 0

    def empty(self, *topics: str) -> None:
        """Topics without records, made if they are not there."""
        for topic in topics:
            if not self._create(topic):
                # -1 is the end.
                partitions = [ConfluentPartition(topic, index, -1) for index in range(PARTITIONS)]
                for done in self._admin.delete_records(partitions).values():
                    done.result(SECONDS)

    def _create(self, topic: str) -> bool:
        if topic in self._admin.list_topics(timeout=SECONDS).topics:
            return False
        wanted = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)
        self._admin.create_topics([wanted], operation_timeout=SECONDS)[topic].result(SECONDS)
        return True

    def values(self, topic: str) -> Counter[tuple[Any, ...]]:
        """Key and fields of every committed record."""
        rows = rows_by_librdkafka(self.broker, topic, PARTITIONS)
        return counted((row.key, json.loads(row.value or b"")) for row in rows)

    def run_program(self, example: Example, folder: Path, **names: Any) -> dict[str, Any]:
        """Runs a Python example; gives its variables."""
        text = localised(example.text, self.broker.bootstrap_servers, folder)
        variables: dict[str, Any] = {"__name__": "__main__", **names}
        try:
            exec(compile("\n" * example.line + text, str(example), "exec"), variables)  # noqa: S102  It is ours.
        finally:
            close_sinks(variables)
        return variables

    def run_file(self, example: Example, modules: Sequence[Example], spark: SparkSession, folder: Path) -> None:
        """Runs a pipeline file over what is there, with the modules beside it."""
        folder.mkdir(exist_ok=True)
        for module in modules:
            (folder / module.text.splitlines()[0].removeprefix("# ")).write_text(module.text)
        file = folder / "pipeline.toml"
        file.write_text(localised(example.text, self.broker.bootstrap_servers, folder))
        path = list(sys.path)
        query, sink = start(spark, load(file), once=True)
        try:
            query.awaitTermination(SECONDS)
            assert query.exception() is None
        finally:
            query.stop()
            sink.close()
            sys.path[:] = path


def close_sinks(variables: dict[str, Any]) -> None:
    """A program that ends here closes its connections by that; this process goes on."""
    for value in variables.values():
        if isinstance(value, MicroBatchSink):
            value.close()


def counted(rows: Iterable[tuple[bytes | None, dict[str, Any]]]) -> Counter[tuple[Any, ...]]:
    """Rows that can be compared whatever their order is."""
    return Counter((key, *sorted(value.items())) for key, value in rows)


def expected(
    orders: Iterable[dict[str, Any]], fields: Sequence[str], key: Callable[[dict[str, Any]], str] = lambda o: o["user"]
) -> Counter[tuple[Any, ...]]:
    """These fields of these orders."""
    return counted((key(each).encode(), {field: each[field] for field in fields}) for each in orders)

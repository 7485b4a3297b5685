"""Real brokers and Spark for the tests that ask for them, and topics of their own.

A broker is started when the first test of a pytest-xdist worker needs it and ends with that worker, whatever happens
to the tests: the broker's guard ends it even if the worker is killed.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sparkonce.deadline import Deadline
from sparkonce.devbroker import QUICK_JVM, DevBroker
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client, Isolation, OffsetAt, list_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC_SECONDS = 60

# A shell that starts the tests in the background makes them ignore Ctrl-C, and so does every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class TopicFactory(Protocol):
    """Creates a topic with a name that no other test has, and returns the name."""

    def __call__(
        self, broker: DevBroker, *, partitions: int = 1, config: dict[str, str] | None = None, name: str = "topic"
    ) -> str: ...


@pytest.fixture(scope="session")
def broker() -> Iterator[DevBroker]:
    """One broker with the new transaction protocol."""
    with DevBroker(transaction_version=2, jvm_options=QUICK_JVM) as started:
        yield started


@pytest.fixture(scope="session")
def broker_tv1() -> Iterator[DevBroker]:
    """One broker with the old transaction protocol."""
    with DevBroker(transaction_version=1, jvm_options=QUICK_JVM) as started:
        yield started


@pytest.fixture(scope="session")
def cluster3() -> Iterator[DevBroker]:
    """Three brokers, every topic on all of them. A test that breaks one repairs it, or starts its own."""
    with DevBroker(brokers=3, jvm_options=QUICK_JVM) as started:
        yield started


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on this machine with two cores, one for all tests of a worker: starting one takes longer than most."""
    from sparkonce.spark.session import SHORT_LIVED, local_session  # noqa: PLC0415  Most tests do without Spark.

    session = local_session("tests", "local[2]", SHORT_LIVED)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def topic() -> TopicFactory:
    """`topic(broker, partitions=3)` makes a fresh topic and gives its name."""
    return create_topic


def create_topic(
    broker: DevBroker, *, partitions: int = 1, config: dict[str, str] | None = None, name: str = "topic"
) -> str:
    """Creates the topic and waits until its leaders know that they are."""
    unique = f"{name}-{uuid.uuid4().hex[:12]}"
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    # -1: as many copies as the cluster's default, which is one per broker.
    wanted = NewTopic(unique, num_partitions=partitions, replication_factor=-1, config=config or {})
    admin.create_topics([wanted], operation_timeout=TOPIC_SECONDS)[unique].result(TOPIC_SECONDS)
    # The answer comes before. A sink that does not try again would lose what it sends until then.
    with Client(ConnectionOptions(bootstrap_servers=broker.bootstrap_servers)) as client:
        asked = {TopicPartition(unique, index): OffsetAt.LATEST for index in range(partitions)}
        list_offsets(client, asked, Isolation.READ_UNCOMMITTED, Deadline.after(TOPIC_SECONDS))
    return unique

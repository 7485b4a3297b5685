"""How long a transaction takes to become visible in all its partitions, once it is visible in one.

Run by `make bench`. Kafka's coordinator writes one marker per partition after it has accepted the commit; a reader may
see one partition's records before another's. Here a second client asks for the last stable offsets all the time.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

import pyarrow as pa

from sparkonce.devbroker import DevBroker
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.records import encode, record_columns
from sparkonce.send import Sender, SendSettings
from sparkonce.transaction import KafkaTransaction, Marker, Owner, TransactionSettings
from sparkonce.wire import Client, Isolation, NewTopic, OffsetAt, create_topics, list_offsets

TOPIC = "visible"
TIMEOUT_MS = 60_000


def main() -> None:
    """Starts brokers, commits transactions, prints the delays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--transactions", type=int, default=100)
    options = parser.parse_args()
    for brokers in (1, 3):
        with DevBroker(brokers=brokers) as broker:
            delays = sorted(measure(broker, options.partitions, options.transactions))
        print(
            f"{brokers} broker(s), {options.partitions} partitions, {len(delays)} transactions, first to last visible "
            f"partition: {statistics.median(delays):.1f} ms (median), {delays[-1]:.1f} ms (longest)",
            flush=True,
        )


def measure(broker: DevBroker, partitions: int, transactions: int) -> list[float]:
    """Milliseconds from the first visible partition to the last, of each transaction."""
    asked = [TopicPartition(TOPIC, index) for index in range(partitions)]
    options = ConnectionOptions(bootstrap_servers=broker.bootstrap_servers)
    seen: list[tuple[float, dict[TopicPartition, int]]] = []
    failed = threading.Event()

    def watch() -> None:
        with Client(options) as client:
            while not failed.is_set() and (not seen or min(seen[-1][1].values()) < 2 * transactions):
                found = list_offsets(client, dict.fromkeys(asked, OffsetAt.LATEST), Isolation.READ_COMMITTED)
                seen.append((time.monotonic(), {partition: at.offset for partition, at in found.items()}))

    with Client(options) as client:
        create_topics(client, [NewTopic(TOPIC, partitions=partitions)])
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for number in range(transactions):
                commit_one(client, asked, number)
        except BaseException:
            failed.set()
            raise
        finally:
            watcher.join()
    return [delay_of(seen, number) for number in range(transactions)]


def commit_one(client: Client, partitions: list[TopicPartition], number: int) -> None:
    """One record in each partition, in one transaction."""
    owner = Owner.here("bench")
    transaction = KafkaTransaction(client, TransactionSettings(f"bench-{number}", partitions[0], owner))
    transaction.claim(TIMEOUT_MS)
    producer = transaction.begin(TIMEOUT_MS)
    transaction.add_partitions(partitions)
    sender = Sender(client, SendSettings(producer, f"bench-{number}", transaction.protocol))
    (batch,) = encode(record_columns(pa.array([b"x"]), default_timestamp_ms=0))
    for partition in partitions:
        sender.send(partition, batch.data)
    sender.finish()
    transaction.pre_commit(Marker(number, owner, producer, ""), {})
    transaction.commit()


def delay_of(seen: list[tuple[float, dict[TopicPartition, int]]], number: int) -> float:
    """A transaction takes two offsets of each partition: its record and its marker."""
    wanted = 2 * (number + 1)
    first = next(at for at, offsets in seen if max(offsets.values()) >= wanted)
    last = next(at for at, offsets in seen if min(offsets.values()) >= wanted)
    return (last - first) * 1000


if __name__ == "__main__":
    main()

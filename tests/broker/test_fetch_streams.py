"""Planning micro-batches against a real broker: starts, limits, discovery, loss. Without Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from sparkonce.errors import UsageError
from sparkonce.fetch import (
    UNSTARTED,
    AtTimestamp,
    Committed,
    Earliest,
    ExactOffsets,
    Latest,
    OffsetRange,
    Position,
    Progress,
    ReadSettings,
    SourceSettings,
    StreamPlanner,
    Subscription,
    TopicNames,
    bounded_ranges,
    parse_assignment,
    parse_topic_pattern,
    ranges_between,
)
from sparkonce.fetch.group_commits import CommitCounts
from sparkonce.model import TopicPartition
from sparkonce.wire import Client, GroupOffset, commit_offsets, committed_offsets, create_topics, delete_topics
from sparkonce.wire import NewTopic as WireTopic
from tests.broker.fetch_samples import BASE_MS, delete_before, producer_of, send
from tests.broker.wire_samples import client_of, partitions_of
from tests.conftest import TopicFactory

WAIT_SECONDS = 30


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Client]:
    with client_of(broker) as connected:
        yield connected


@pytest.fixture
def two(broker: DevBroker, topic: TopicFactory) -> str:
    """A topic with 100 records in partition 0 and 50 in partition 1, a millisecond apart."""
    name = topic(broker, partitions=2)
    fill(broker, name, 0, 100)
    fill(broker, name, 1, 50)
    return name


def fill(broker: DevBroker, name: str, partition: int, count: int, first_ms: int = BASE_MS) -> None:
    send(
        producer_of(broker, **{"batch.num.messages": 10}), name, [b"%d" % n for n in range(count)], partition, first_ms
    )


def planner(client: Client, what: str | Subscription, starting: Position, **more: Any) -> StreamPlanner:
    subscription = TopicNames((what,)) if isinstance(what, str) else what
    return StreamPlanner(client, SourceSettings(subscription=subscription, starting=starting, **more))


def started(client: Client, name: str, starting: Position) -> list[int]:
    """Where a stream begins, in partition 0 and 1; whatever comes later does not move it."""
    progress = planner(client, name, starting).next(UNSTARTED, unlimited=False)
    # A process that was killed after Spark wrote its log: the same ranges, although the start would be another now.
    again = planner(client, name, starting)
    assert again.ranges(UNSTARTED, progress) == ranges_between(UNSTARTED, progress)
    return [progress.start[partition] for partition in partitions_of(name, 2)]


def test_starts(client: Client, two: str) -> None:
    a, b = partitions_of(two, 2)
    assert started(client, two, Earliest()) == [0, 0]
    assert started(client, two, Latest()) == [100, 50]
    assert started(client, two, ExactOffsets({a: 7, b: -1})) == [7, 50]
    assert started(client, two, AtTimestamp(for_all_ms=BASE_MS + 20)) == [20, 20]
    assert started(client, two, AtTimestamp(of_each_ms={a: BASE_MS + 99, b: BASE_MS})) == [99, 0]
    assert started(client, two, AtTimestamp(for_all_ms=BASE_MS + 60, latest_if_none=True)) == [60, 50]


def test_starts_of_a_group(client: Client, two: str) -> None:
    a, b = partitions_of(two, 2)
    group = f"group-{uuid.uuid4()}"
    commit_offsets(client, group, {a: GroupOffset(33)})
    assert started(client, two, Committed(group, Earliest())) == [33, 0]
    assert started(client, two, Committed(group, Latest())) == [33, 50]
    with pytest.raises(UsageError, match=rf"group {group} has committed no offset for {b}"):
        started(client, two, Committed(group))
    commit_offsets(client, group, {b: GroupOffset(11)})
    assert started(client, two, Committed(group)) == [33, 11]


def test_starts_that_are_not_there(client: Client, two: str) -> None:
    a, b = partitions_of(two, 2)
    with pytest.raises(UsageError, match="-0 cannot be read from offset 101: it has 0"):
        started(client, two, ExactOffsets({a: 101, b: 0}))
    with pytest.raises(UsageError, match="must name every topic partition that is read; missing are"):
        started(client, two, ExactOffsets({a: 1}))
    with pytest.raises(UsageError, match="-1 has no record at or after the timestamp"):
        started(client, two, AtTimestamp(for_all_ms=BASE_MS + 60))


def test_a_start_stays_where_it_was_while_records_arrive(broker: DevBroker, client: Client, two: str) -> None:
    for starting in (Latest(), AtTimestamp(for_all_ms=BASE_MS + 10**9, latest_if_none=True)):
        first = planner(client, two, starting)
        progress = first.next(UNSTARTED, unlimited=False)
        assert progress.start == progress.end
        fill(broker, two, 0, 5)
        # Killed and started again: Spark has written the first plan down, although there was nothing to read.
        restarted = planner(client, two, starting)
        assert restarted.ranges(UNSTARTED, progress) == ()
        later = restarted.next(progress, unlimited=False)
        begin = progress.end[TopicPartition(two, 0)]
        assert restarted.ranges(progress, later) == (OffsetRange(TopicPartition(two, 0), begin, begin + 5),)


def test_limits_and_splitting(client: Client, two: str) -> None:
    limited = planner(client, two, Earliest(), max_offsets=30, max_records_per_partition=10)
    progress = limited.next(UNSTARTED, unlimited=False)
    assert list(progress.end.values()) == [20, 10]
    assert [piece.offsets for piece in limited.ranges(UNSTARTED, progress)] == [10, 10, 10]
    everything = limited.next(progress, unlimited=True)
    assert list(everything.end.values()) == [100, 50]
    spread = planner(client, two, Earliest(), min_partitions=6)
    assert [piece.offsets for piece in spread.ranges(UNSTARTED, everything)] == [25] * 6


def test_waiting_for_enough_records(broker: DevBroker, client: Client, two: str) -> None:
    patient = planner(client, two, Latest(), min_offsets=10)
    progress = patient.next(UNSTARTED, unlimited=False)
    fill(broker, two, 0, 9)
    assert patient.next(progress, unlimited=False) is progress
    assert patient.next(progress, unlimited=True) != progress
    impatient = planner(client, two, Latest(), min_offsets=10, max_trigger_delay_ms=1)
    assert wait_until(lambda: impatient.next(progress, unlimited=False) != progress, Deadline.after(WAIT_SECONDS))
    fill(broker, two, 1, 1)
    assert sum(patient.next(progress, unlimited=False).end.values()) == sum(progress.end.values()) + 10


def test_available_now_ends_at_what_there_was(broker: DevBroker, client: Client, two: str) -> None:
    bounded = planner(client, two, Earliest(), max_offsets=60)
    bounded.freeze_target()
    fill(broker, two, 0, 40)
    ends, progress = [], UNSTARTED
    while (later := bounded.next(progress, unlimited=False)) != progress:
        ends.append(sum(later.end.values()))
        progress = later
    assert ends == [60, 120, 150]


def test_a_stream_with_a_stop(broker: DevBroker, client: Client, two: str) -> None:
    a, b = partitions_of(two, 2)
    for ending, expected in (
        (ExactOffsets({a: 70, b: 50}), [70, 50]),
        (Latest(), [100, 51]),
        (AtTimestamp(for_all_ms=BASE_MS + 30, latest_if_none=True), [30, 30]),
    ):
        progress = planner(client, two, Earliest(), ending=ending, max_offsets=40).next(UNSTARTED, unlimited=False)
        fill(broker, two, 1, 1)
        # Another process goes on: the stop was decided by the first.
        stream = planner(client, two, Earliest(), ending=ending)
        last = stream.next(progress, unlimited=False)
        assert list(last.end.values()) == expected
        assert stream.next(last, unlimited=True) == last
    backwards = planner(client, two, ExactOffsets({a: 90, b: 0}), ending=ExactOffsets({a: 70, b: 50}))
    with pytest.raises(UsageError, match="the start, offset 90, lies behind the end, offset 70"):
        backwards.next(UNSTARTED, unlimited=False)


def test_offsets_are_shown_to_a_group(client: Client, two: str, caplog: pytest.LogCaptureFixture) -> None:
    a, b = partitions_of(two, 2)
    group = f"shown-{uuid.uuid4()}"
    stream = planner(client, two, Earliest(), commit_group=group)
    assert stream.commits is not None
    stream.committed(UNSTARTED)
    assert committed_offsets(client, group, [a, b]) == {}
    progress = stream.next(UNSTARTED, unlimited=False)
    stream.committed(progress)
    stream.committed(progress)
    found = committed_offsets(client, group, [a, b])
    assert {partition: value.offset for partition, value in found.items()} == {a: 100, b: 50}
    assert stream.commits.counts == CommitCounts(succeeded=1)
    # A failure is a warning and a number.
    nowhere = Progress({}, {TopicPartition("no-such-topic", 0): 1})
    stream.committed(nowhere)
    assert stream.commits.counts == CommitCounts(succeeded=1, failed=1)
    assert "the query goes on" in caplog.text
    stream.committed(nowhere)
    assert stream.commits.counts == CommitCounts(succeeded=1, failed=1)


def test_new_partitions_and_topics_are_read_from_their_beginning(
    broker: DevBroker, client: Client, topic: TopicFactory
) -> None:
    base = topic(broker, partitions=1, name="found")
    fill(broker, base, 0, 3)
    stream = planner(client, parse_topic_pattern(f"{base}.*"), Latest(), discovery_interval_ms=1)
    progress = stream.next(UNSTARTED, unlimited=False)
    assert progress.end == {TopicPartition(base, 0): 3}
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(base, 2)])[base].result(WAIT_SECONDS)
    create_topics(client, [WireTopic(f"{base}-more", partitions=1)])
    fill(broker, base, 1, 4)
    fill(broker, f"{base}-more", 0, 5)
    expected = {TopicPartition(base, 0): 3, TopicPartition(base, 1): 4, TopicPartition(f"{base}-more", 0): 5}
    assert wait_until(lambda: stream.next(progress, unlimited=False).end == expected, Deadline.after(WAIT_SECONDS))
    later = stream.next(progress, unlimited=False)
    assert stream.ranges(progress, later) == (
        OffsetRange(TopicPartition(base, 1), 0, 4),
        OffsetRange(TopicPartition(f"{base}-more", 0), 0, 5),
    )


def test_discovery_waits_for_its_interval(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker, partitions=1)
    stream = planner(client, name, Earliest(), discovery_interval_ms=3_600_000)
    progress = stream.next(UNSTARTED, unlimited=False)
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(WAIT_SECONDS)
    fill(broker, name, 1, 1)
    assert stream.next(progress, unlimited=False) == progress


def test_assigned_partitions(client: Client, two: str) -> None:
    only = parse_assignment(f'{{"{two}": [1]}}')
    assert planner(client, only, Earliest()).next(UNSTARTED, unlimited=False).end == {TopicPartition(two, 1): 50}
    missing = parse_assignment(f'{{"{two}": [7]}}')
    with pytest.raises(UsageError, match=f"assign names {two}-7, but topic {two} has 2 partitions"):
        planner(client, missing, Earliest()).next(UNSTARTED, unlimited=False)


def test_a_partition_that_is_a_day_ahead_is_held_back(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker, partitions=3)
    day_ms = 86_400_000
    fill(broker, name, 0, 500)
    fill(broker, name, 1, 300, first_ms=BASE_MS + day_ms)
    stream = planner(client, name, Earliest(), max_event_time_drift_ms=200)
    ends, progress = [], UNSTARTED
    while (later := stream.next(progress, unlimited=False)) != progress:
        ends.append(tuple(later.end.values()))
        progress = later
    assert ends == [(200, 0, 0), (400, 0, 0), (500, 0, 0), (500, 200, 0), (500, 300, 0)]
    free = planner(client, name, Earliest()).next(UNSTARTED, unlimited=False)
    assert tuple(free.end.values()) == (500, 300, 0)


def test_an_idle_partition_holds_the_others_for_a_while(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker, partitions=2)
    fill(broker, name, 0, 10)
    fill(broker, name, 1, 10, first_ms=BASE_MS + 86_400_000)
    for idle_timeout_ms, expected in ((3_600_000, (10, 0)), (1, (10, 10))):
        stream = planner(client, name, Earliest(), max_event_time_drift_ms=1_000, idle_timeout_ms=idle_timeout_ms)
        progress = stream.next(UNSTARTED, unlimited=False)
        assert tuple(progress.end.values()) == (10, 0)
        time.sleep(0.01)  # Longer than the shorter of the two idle times.
        assert tuple(stream.next(progress, unlimited=False).end.values()) == expected


def test_a_missing_topic_is_named_in_seconds(client: Client) -> None:
    with pytest.raises(UsageError, match="no-such-topic"):
        planner(client, "no-such-topic", Earliest()).next(UNSTARTED, unlimited=False)


def test_lost_records(broker: DevBroker, client: Client, two: str) -> None:
    a, b = partitions_of(two, 2)
    stream = planner(client, two, Earliest())
    progress = stream.next(UNSTARTED, unlimited=False)
    delete_before(broker, two, 40)
    with pytest.raises(UsageError, match=rf"{two}-0 \[0, 40\) \(40 offsets\)"):
        stream.ranges(UNSTARTED, progress)
    lenient = planner(client, two, Earliest(), read=ReadSettings(fail_on_data_loss=False))
    assert lenient.ranges(UNSTARTED, progress) == (OffsetRange(a, 40, 100), OffsetRange(b, 0, 50))


def test_a_topic_deleted_and_made_anew(broker: DevBroker, client: Client, topic: TopicFactory) -> None:
    name = topic(broker)
    fill(broker, name, 0, 5)
    progress = planner(client, name, Earliest()).next(UNSTARTED, unlimited=False)
    delete_topics(client, [name])
    create_again(client, name)
    fill(broker, name, 0, 9)
    with client_of(broker) as fresh:
        with pytest.raises(UsageError, match=f"{name} was deleted and made anew"):
            planner(fresh, name, Earliest()).next(progress, unlimited=False)
        lenient = planner(fresh, name, Earliest(), read=ReadSettings(fail_on_data_loss=False))
        later = lenient.next(progress, unlimited=False)
        assert lenient.ranges(progress, later) == (OffsetRange(TopicPartition(name, 0), 0, 9),)


def create_again(client: Client, name: str) -> None:
    """A deleted topic's name is free again after a moment."""

    def created() -> bool:
        try:
            create_topics(client, [WireTopic(name, partitions=1)])
        except UsageError:
            return False
        return True

    assert wait_until(created, Deadline.after(WAIT_SECONDS))


def test_bounded_reads(client: Client, two: str) -> None:
    a, b = partitions_of(two, 2)

    def ranges(starting: Position, ending: Position | None = None, **more: Any) -> tuple[OffsetRange, ...]:
        settings = SourceSettings(subscription=TopicNames((two,)), starting=starting, ending=ending, **more)
        return bounded_ranges(client, settings)

    assert ranges(Earliest()) == (OffsetRange(a, 0, 100), OffsetRange(b, 0, 50))
    ending = AtTimestamp(for_all_ms=BASE_MS + 70, latest_if_none=True)
    assert ranges(ExactOffsets({a: 5, b: -2}), ending) == (OffsetRange(a, 5, 70), OffsetRange(b, 0, 50))
    assert len(ranges(Earliest(), min_partitions=6)) == 6
    with pytest.raises(UsageError, match="the start, offset 90, lies behind the end, offset 10"):
        ranges(ExactOffsets({a: 90, b: 0}), ExactOffsets({a: 10, b: 1}))


def test_progress_of_another_topic_is_refused(client: Client, two: str) -> None:
    foreign = Progress({TopicPartition("other", 0): 0}, {TopicPartition("other", 0): 9}, {"other": "id"})
    with pytest.raises(UsageError, match="other-0 no longer exist"):
        planner(client, two, Earliest()).next(foreign, unlimited=False)

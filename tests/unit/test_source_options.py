"""Every option of the source, and what is said about wrong ones."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from sparkonce.errors import UsageError
from sparkonce.fetch import AtTimestamp, Committed, Earliest, ExactOffsets, Latest, TopicNames
from sparkonce.model import TopicPartition
from sparkonce.spark.source_options import SourceOptions, source_options
from sparkonce.wire import Isolation

PLACE = {"kafka.bootstrap.servers": "here:9092", "subscribe": "t"}


def parsed(*, streaming: bool = True, **given: str) -> SourceOptions:
    options = CaseInsensitiveDict({**PLACE, **{name.replace("__", "."): text for name, text in given.items()}})
    return source_options(options, streaming=streaming)


def test_defaults_are_those_of_the_built_in_source() -> None:
    stream, bounded = parsed(), parsed(streaming=False)
    assert stream.settings.starting == Latest()
    assert bounded.settings.starting == Earliest()
    assert bounded.settings.ending == Latest()
    assert stream.settings.subscription == TopicNames(("t",))
    assert stream.settings.read.fail_on_data_loss
    assert stream.settings.read.isolation is Isolation.READ_COMMITTED
    assert not stream.columns.include_headers


def test_starts() -> None:
    a = TopicPartition("t", 0)
    assert parsed(startingOffsets="EARLIEST").settings.starting == Earliest()
    assert parsed(startingOffsets='{"t": {"0": -2}}').settings.starting == ExactOffsets({a: -2})
    assert parsed(startingTimestamp="5").settings.starting == AtTimestamp(for_all_ms=5)
    assert parsed(
        startingOffsetsByTimestamp='{"t": {"0": 7}}', startingOffsetsByTimestampStrategy="latest"
    ).settings.starting == AtTimestamp(of_each_ms={a: 7}, latest_if_none=True)
    committed = parsed(startingOffsets="committed", kafka__group__id="g")
    assert committed.settings.starting == Committed("g")
    reset = parsed(startingOffsets="committed", kafka__group__id="g", committedOffsetsReset="latest")
    assert reset.settings.starting == Committed("g", Latest())


def test_numbers_times_and_properties() -> None:
    options = parsed(
        maxOffsetsPerTrigger="10",
        minOffsetsPerTrigger="2",
        maxBytesPerTrigger="7",
        maxTriggerDelay="2m",
        partitionDiscoveryInterval="500",
        minPartitions="4",
        maxRecordsPerPartition="9",
        kafka__isolation__level="read_uncommitted",
        kafka__max__partition__fetch__bytes="100",
        kafka__fetch__max__bytes="50",
        kafka__client__id="me",
        kafka__max__poll__records="500",
        groupIdPrefix="without-effect",
        includeHeaders="true",
    )
    settings = options.settings
    assert (settings.max_offsets, settings.min_offsets, settings.max_trigger_delay_ms) == (10, 2, 120_000)
    assert settings.max_bytes == 7
    assert (settings.discovery_interval_ms, settings.min_partitions, settings.max_records_per_partition) == (500, 4, 9)
    assert parsed(maxPartitions="4", minPartitions="4").settings.max_partitions == 4
    assert (settings.read.isolation, settings.read.fetch_bytes) == (Isolation.READ_UNCOMMITTED, 50)
    assert options.connection.client_id == "me"
    assert options.columns.include_headers


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribePattern": "x"}, "not subscribe and subscribePattern together"),
        ({"subscibe": "t"}, "unknown source option 'subscibe'; did you mean 'subscribe'?"),
        ({"startingoffset": "latest"}, "did you mean 'startingOffsets'"),
        ({"kafka.secrity.protocol": "SSL"}, "did you mean 'security.protocol'"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets says where to start"),
        ({"startingOffsets": "newest"}, "startingOffsets must be earliest, latest or offsets"),
        ({"startingOffsets": "{"}, "startingOffsets is not JSON"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "t-0: -3 is no offset"),
        ({"startingOffsets": "committed"}, "kafka.group.id must say of which group"),
        ({"commitOffsetsOnCheckpoint": "true"}, "kafka.group.id must say of which group"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be above 0"),
        ({"maxPartitions": "0"}, "maxPartitions must be"),
        ({"maxPartitions": "2", "minPartitions": "3"}, "maxPartitions (2) is less than minPartitions (3)"),
        ({"maxPartitions": "2", "maxRecordsPerPartition": "3"}, "give one of them"),
        ({"minPartitions": "many"}, "minPartitions must be a whole number"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time such as"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"kafka.isolation.level": "dirty"}, "isolation.level must be one of"),
        ({"maxBytesPerTrigger": "-1"}, "maxBytesPerTrigger must be above 0"),
        ({"valueFormat": "xml"}, "valueFormat must be one of binary, string, json"),
        ({"valueFormat": "json"}, "valueSchema goes with valueFormat=json"),
        ({"keySchema": "id BIGINT"}, "keySchema goes with keyFormat=json"),
        ({"onMalformed": "skip"}, "onMalformed must be one of fail, null, raw"),
        ({"kafka.value.deserializer": "x"}, "the option valueFormat says what values are"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_wrong_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        source_options(CaseInsensitiveDict({**PLACE, **given}), streaming=True)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets cannot be earliest"),
    ],
)
def test_wrong_bounds(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        source_options({**PLACE, **given}, streaming=False)


def test_nothing_to_read() -> None:
    with pytest.raises(UsageError, match="one of subscribe, subscribePattern and assign; none is given"):
        source_options({"kafka.bootstrap.servers": "here"}, streaming=True)

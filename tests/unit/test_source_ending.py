"""When a query has nothing left to read for good."""

from __future__ import annotations

import json

from sparkonce.fetch import UNSTARTED, Progress
from sparkonce.model import TopicPartition
from sparkonce.spark.source_ending import all_reached_stop

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def text(end: dict[TopicPartition, int], stop: dict[TopicPartition, int] | None) -> str:
    return json.dumps(Progress(dict.fromkeys(end, 0), end, {"t": "id"}, stop).to_json())


def test_the_stop_is_reached_everywhere() -> None:
    stop = {A: 5, B: 7}
    assert all_reached_stop([text({A: 5, B: 7}, stop)])
    assert all_reached_stop([text({A: 5, B: 7}, stop)] * 2)
    assert not all_reached_stop([text({A: 5, B: 6}, stop)])
    assert not all_reached_stop([text({A: 5, B: 7}, None)])
    # A partition that vanished holds nobody up.
    assert all_reached_stop([text({A: 5}, stop)])


def test_other_sources_keep_a_query_alive() -> None:
    done = text({A: 5}, {A: 5})
    for other in (None, '{"t": {"0": 5}}', "17", "not json", '{"logOffset": 3}', '{"version": 9}'):
        assert not all_reached_stop([done, other])
    assert not all_reached_stop([json.dumps(UNSTARTED.to_json())])

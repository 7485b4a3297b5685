"""The driver is killed at every step of a micro-batch and started again: nothing missing, nothing doubled."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from sparkonce.devbroker import DevBroker
from tests.cluster.judge import WAYS, Verdict, judge, run, write_input
from tests.cluster.pipeline import POINTS, Job
from tests.conftest import TopicFactory

PARTITIONS = 3
ROWS = 400


@pytest.mark.parametrize("protocol", ["broker", pytest.param("broker_tv1", marks=pytest.mark.chaos)])
@WAYS
@pytest.mark.timeout(900)
def test_a_driver_killed_at_every_step(
    one_stage: bool, protocol: str, request: pytest.FixtureRequest, topic: TopicFactory, tmp_path: Path
) -> None:
    broker: DevBroker = request.getfixturevalue(protocol)
    name = topic(broker, partitions=PARTITIONS)
    # One batch for each point, one between them that is not touched, and one at the end.
    expected = write_input(tmp_path / "in", files=len(POINTS) + 2, rows=ROWS)
    checkpoint, options = str(tmp_path / "checkpoint"), {"one_stage": one_stage}
    job = Job(broker.bootstrap_servers, name, str(tmp_path / "in"), checkpoint, options=options)
    outputs = {}
    for batch, point in enumerate(POINTS):
        code, outputs[point] = run(replace(job, fault=point, fault_batch=batch))
        assert code == -signal.SIGKILL, f"{point} was not reached:\n{outputs[point]}"
    code, output = run(job)
    assert code == 0, output
    assert ("is sent in one stage" in output) is one_stage
    found = judge(broker.bootstrap_servers, name, PARTITIONS, expected)
    assert found == Verdict(missing=[], doubled=[], out_of_order=0, found=len(expected))
    # The batch whose commit was answered before its driver died was recognised by its marker in the next run.
    answered = POINTS.index("end-answered")
    assert re.search(rf"batch {answered} .*already_committed=True", outputs[POINTS[answered + 1]])
    assert "already_committed=True" not in outputs["last-produce"]

"""A checkpoint of the built-in connector becomes a pipeline's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkonce.cli.main import cli
from sparkonce.errors import UsageError
from sparkonce.fetch.checkpoint import read_checkpoint
from sparkonce.model import TopicPartition
from sparkonce.pipeline.migration import migrate, plan_migration

METADATA = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})


def write(folder: Path, planned: int, committed: int, *sources: str) -> Path:
    """A checkpoint as Spark writes it."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id": "query-1"}')
    for batch in range(planned + 1):
        lines = [source.replace("$", str(10 * (batch + 1))) for source in sources]
        (folder / "offsets" / str(batch)).write_text("\n".join(["v1", METADATA, *lines]))
        (folder / "offsets" / f".{batch}.crc").touch()
    for batch in range(committed + 1):
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


PIPELINE = """
name = "orders"
checkpoint = "checkpoint"
[source]
bootstrap_servers = "kafka:9092"
topics = ["orders"]
[[sink]]
type = "files"
path = "archive"
"""
BUILT_IN = '{"orders": {"0": $, "1": 3}}'


@pytest.mark.parametrize("planned", [1, 2])
def test_migration_copies_and_says_where_it_goes_on(tmp_path: Path, planned: int) -> None:
    old, new = write(tmp_path / "old", planned, 1, BUILT_IN), tmp_path / "below" / "new"
    plan = plan_migration(str(old), str(new))
    assert (plan.next_batch, plan.repeats) == (2, planned == 2)
    assert plan.offsets[TopicPartition("orders", 0)] == 20
    assert not new.exists()
    migrate(plan)
    assert replace(read_checkpoint(str(new)), folder=old) == read_checkpoint(str(old))
    assert [path.name for path in new.parent.iterdir()] == ["new"]
    with pytest.raises(UsageError, match="in use already"):
        plan_migration(str(old), str(new))


def test_a_program_says_yes_and_gets_json(tmp_path: Path) -> None:
    old, file = write(tmp_path / "old", 1, 1, BUILT_IN), tmp_path / "orders.toml"
    file.write_text(PIPELINE)
    words = ["migrate", str(file), "--from-checkpoint", str(old), "--json"]
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 1
    assert not (tmp_path / "checkpoint").exists()
    told = json.loads(CliRunner().invoke(cli, [*words, "--yes"]).output)
    assert told == {
        "source": str(old),
        "target": str(tmp_path / "checkpoint"),
        "query_id": read_checkpoint(str(old)).query_id,
        "next_batch": 2,
        "repeats": False,
        "offsets": {"orders": {"0": 20, "1": 3}},
    }
    assert Path(told["target"], "offsets").is_dir()


@pytest.mark.parametrize(
    ("planned", "committed", "sources", "problem"),
    [
        (0, -1, [BUILT_IN], "no finished micro-batch"),
        (1, 1, [BUILT_IN, BUILT_IN], "one source"),
        (1, 1, ["5"], "one source"),
        (-1, -1, [], "no finished micro-batch"),
    ],
)
def test_checkpoints_that_cannot_be_taken_over(
    tmp_path: Path, planned: int, committed: int, sources: list[str], problem: str
) -> None:
    old = write(tmp_path / "old", planned, committed, *sources)
    with pytest.raises(UsageError, match=problem):
        plan_migration(str(old), str(tmp_path / "new"))
    with pytest.raises(UsageError, match="not a checkpoint"):
        plan_migration(str(tmp_path / "nowhere"), str(tmp_path / "new"))

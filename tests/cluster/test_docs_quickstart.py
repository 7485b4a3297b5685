"""The quick start, typed as it stands: its commands in a shell, its programs in the order of the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkonce.devbroker.ports import free_ports
from tests.cluster.judge import read_committed
from tests.documents import Example, examples, localised, page
from tests.quick_spark import quick_environment
from tests.shop import close_sinks

PAGE = page("QUICKSTART.md")
SECONDS = 180


class Reader:
    """Somebody who follows the page, in a folder of their own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.servers = f"127.0.0.1:{port}"
        programs = Path(sys.executable).parent
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._environment = quick_environment(PATH=path, SPARKONCE_STATE=str(folder / "state"))

    def types(self, text: str, code: int = 0) -> str:
        """One line or more in a shell; what it says."""
        done = subprocess.run(
            ["bash", "-ec", text.replace("--port 19092", f"--port {self.port}")],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr + done.stdout

    def runs(self, example: Example) -> None:
        """A program, in this process: starting Spark takes longer than all of it."""
        text = localised(example.text, self.servers, self.folder)
        variables: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(text, str(example), "exec"), variables)  # noqa: S102  It is ours.
        close_sinks(variables)

    def edits(self, file: Path, example: Example) -> None:
        """Puts the lines of the example in the place of those with the same names."""
        text = localised(file.read_text(), self.servers, self.folder)
        for line, name in re.findall(r"^((\w+) = .*)$", example.text, re.MULTILINE):
            text, count = re.subn(rf"^{name} = .*$", line.replace("\\", r"\\"), text, flags=re.MULTILINE)
            assert count == 1, name
        file.write_text(text)

    def big_orders(self) -> list[int]:
        return sorted(json.loads(value)["id"] for _, _, value in read_committed(self.servers, "big-orders", 2))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path, free_ports(1)[0])
    yield reader
    reader.types("sparkonce broker stop")


def test_the_page_from_beginning_to_end(reader: Reader, spark: SparkSession) -> None:
    steps = [example for example in examples(PAGE) if example.reason is None]
    assert [step.language for step in steps] == ["sh", "python", "sh", "toml", "sh", "python", "sh"]
    start, make_orders, init, edit, pipeline, program, stop = steps
    assert reader.servers in reader.types(start.text)
    reader.runs(make_orders)
    assert "Edit these lines" in reader.types(init.text)
    reader.edits(reader.folder / "big-orders.toml", edit)
    told = reader.types(pipeline.text)
    assert "is right" in told
    assert re.search(r"0 problems, \d+ warnings?", told)
    assert re.search(r"expected +1,500\n +found +1,500\n +missing +0\n +doubled +0", told)
    once = [number for number in range(3_000) if number % 1_000 >= 500]
    assert reader.big_orders() == once
    reader.runs(program)
    assert reader.big_orders() == sorted(once + once)
    found = json.loads(reader.types("sparkonce verify big-orders.toml --json", code=1).splitlines()[-1])
    assert (found["expected"], found["found"], found["doubled"]) == (1_500, 3_000, 1_500)
    assert "stopped" in reader.types(stop.text)

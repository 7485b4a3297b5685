"""`sparkonce check` and `init`: every kind of broken file has its own message, and no output shows a secret.

Beside each file of `tests/data/pipelines` stands what `sparkonce check` says about it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkonce.cli.main import cli
from sparkonce.errors import UsageError
from sparkonce.pipeline import Loaded, PipelineError, load, load_text
from sparkonce.pipeline.secret import Secret
from tests.unit.pipeline_samples import ENVIRONMENT, FILES, FOLDER, HIDDEN, RIGHT, WRONG, toml_of


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARKONCE_TEST_NO_SUCH_VARIABLE", raising=False)


def sparkonce(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_said_about_a_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    result = sparkonce("check", file.name)
    assert result.output == file.with_suffix(".expected").read_text()
    assert result.exit_code == (0 if file in RIGHT else 1)


def test_there_are_enough_kinds() -> None:
    assert len(WRONG) >= 30
    messages = [re.sub(r"line \d+: ", "", file.with_suffix(".expected").read_text().split("\n")[1]) for file in WRONG]
    assert len(set(messages)) >= len(messages) - 3


@pytest.mark.parametrize(
    "file", [file for file in WRONG if file.stem not in ("empty", "not-toml")], ids=lambda f: f.stem
)
def test_lines_are_those_of_the_keys(file: Path) -> None:
    """The last part of a key's name stands on the line that is named; a missing one is named at its table."""
    lines = file.read_text().splitlines()
    for problem in load_text(file.read_text(), FOLDER).problems:
        name = re.sub(r"\[\d+\]$", "", problem.key).replace('"', "").split(".")[-1]
        assert name in lines[problem.line - 1]


def test_json() -> None:
    found = json.loads(sparkonce("check", str(FOLDER / "wrong-guarantee.toml"), "--json").output)
    assert found["ok"] is False
    assert found["problems"] == [
        {
            "line": 15,
            "key": "sink[1].guarantee",
            "message": 'is "exactly_once"; expected one of "exactly-once", "at-least-once", "none"; '
            'did you mean "exactly-once"?',
        }
    ]
    right = sparkonce("check", str(RIGHT[0]), "--json")
    assert right.exit_code == 0
    assert json.loads(right.output)["problems"] == []


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = sparkonce("check", str(tmp_path / "none.toml"))
    assert (result.exit_code, result.output) == (
        1,
        f"Error: {tmp_path / 'none.toml'} cannot be read: No such file or directory\n",
    )
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"\n')
    assert "is not UTF-8 text" in sparkonce("check", str(tmp_path / "latin.toml")).output
    assert sparkonce("check").exit_code == 2


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    assert isinstance(sparkonce("--debug", "check", str(tmp_path / "none.toml")).exception, UsageError)


def test_load_raises_with_every_problem() -> None:
    with pytest.raises(PipelineError, match=r"everything-wrong.toml: 20 problems") as raised:
        load(FOLDER / "everything-wrong.toml")
    assert len(raised.value.problems) == 20


def test_a_broken_text_is_answered_without_spark() -> None:
    code = (
        "import sys\nfrom sparkonce.cli.main import cli\n"
        f"try: cli(['check', {str(FOLDER / 'not-toml.toml')!r}])\n"
        "except SystemExit as end: assert end.code == 1\n"
        "assert not {'pyspark', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("command", ["check", "init"])
def test_help_has_an_example(command: str) -> None:
    assert f"Example:\n    sparkonce {command}" in sparkonce(command, "--help").output


# Secrets.


def test_nothing_shows_a_secret() -> None:
    for file in FILES:
        loaded = load_text(file.read_text(), FOLDER)
        texts = [repr(loaded), str(loaded), sparkonce("check", str(file)).output]
        texts.append(sparkonce("check", str(file), "--json").output)
        # A password in the file itself is part of the pipeline; of an error it never is.
        assert not [word for word in HIDDEN for text in texts if word in text], file


def test_secrets_are_read_when_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text(" with spaces \r\n")
    secret = Secret("file", "password", tmp_path)
    assert secret.reveal() == " with spaces "
    (tmp_path / "password").write_text("renewed")
    assert secret.reveal() == "renewed"
    (tmp_path / "password").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="the file password cannot be read: it is not text") as raised:
        secret.reveal()
    assert raised.value.__cause__ is None
    monkeypatch.setenv("SPARKONCE_TEST_SERVERS", "other:9092")
    assert Secret("env", "SPARKONCE_TEST_SERVERS").reveal() == "other:9092"


# Whatever a file holds, it is answered: no traceback, and either a pipeline or problems.

JUNK: list[Any] = ["", "x", "a:b", 0, -3, 1.5, True, [], ["a"], [{}], {}, {"a": 1}, {"env": "NO_SUCH"}, {"file": "x"}]
JUNK += [dt.datetime(2026, 1, 31, 12), dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), dt.date(2026, 1, 31), None]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every table or list, with each of its keys or indexes."""
    if not isinstance(value, dict | list):
        return []
    names = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, name) for name in names] + [place for name in names for place in places(value[name])]


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.sampled_from(RIGHT), st.lists(st.tuples(st.integers(0, 999), st.sampled_from(JUNK)), min_size=1, max_size=3))
def test_any_file_is_answered(file: Path, changes: list[tuple[int, Any]]) -> None:
    parsed = tomllib.loads(file.read_text())
    for number, junk in changes:
        found = places(parsed)
        if not found:
            continue
        table, name = found[number % len(found)]
        if junk is None:
            del table[name]
        else:
            table[name] = json.loads(json.dumps(junk)) if isinstance(junk, dict | list) else junk
    text = toml_of(parsed)
    loaded: Loaded = load_text(text, FOLDER)
    assert (loaded.pipeline is None) == bool(loaded.problems)
    for problem in loaded.problems:
        assert 1 <= problem.line <= max(1, len(text.splitlines()))
        assert not any(word in str(problem) for word in HIDDEN)


# init


def test_init_needs_three_edits(tmp_path: Path) -> None:
    file = tmp_path / "my orders.toml"
    said = sparkonce("init", str(file))
    assert said.exit_code == 0
    assert re.findall(r"line (\d+)", said.output) == ["8", "9", "24"]
    assert sparkonce("check", str(file)).exit_code == 1
    lines = file.read_text().splitlines()
    for number, setting in [(8, 'bootstrap_servers = "kafka:9092"'), (9, 'topics = ["in"]'), (24, 'topic = "out"')]:
        assert lines[number - 1].split(" = ")[0] == setting.split(" = ")[0]
        lines[number - 1] = setting
    file.write_text("\n".join(lines))
    result = sparkonce("check", str(file))
    assert (result.exit_code, result.output) == (
        0,
        f"{file} is right: my-orders: Kafka in → SQL → Kafka out (exactly-once)\n",
    )


def test_init_tells_programs_what_to_edit(tmp_path: Path) -> None:
    told = json.loads(sparkonce("init", str(tmp_path / "orders.toml"), "--json").output)
    assert [(edit["line"], edit["setting"].split(" = ")[0]) for edit in told["edit"]] == [
        (8, "bootstrap_servers"),
        (9, "topics"),
        (24, "topic"),
    ]
    assert all(edit["what"] for edit in told["edit"])


def test_what_init_has_in_comments_is_right_too(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    sparkonce("init", str(file))
    text = file.read_text().replace("<input topic>", "in").replace("<output topic>", "out")
    text = text.replace("KAFKA_PASSWORD", "SPARKONCE_TEST_PASSWORD")
    uncommented = re.sub(r"^# (?=value|\[|type|path|\")", "", text, flags=re.MULTILINE)
    assert re.findall(r"^# \S.*", uncommented, re.MULTILINE)[1:] == []
    assert load_text(uncommented, tmp_path).problems == []


def test_init_keeps_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text("mine")
    result = sparkonce("init", str(file))
    assert result.exit_code == 1
    assert "is there already" in result.output
    assert file.read_text() == "mine"
    assert "cannot be written" in sparkonce("init", str(tmp_path / "none" / "orders.toml")).output

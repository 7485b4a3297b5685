"""The documents: links lead somewhere, commands and make targets exist, pipeline files are right, and every Python
example has a test that runs it.
"""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from sparkonce.cli.main import cli
from sparkonce.pipeline.loading import load_text
from sparkonce.spark.source_options import OPTIONS
from sparkonce.wire.verdicts import CODES
from tests.documents import DOCUMENTS, EXECUTED_BY, ROOT, Example, all_examples, commands, examples, page
from tests.unit.pipeline_samples import toml_of

TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
NOT_RUN_MAX = 3
COMMANDS = sorted({command for document in DOCUMENTS for command in commands(document)})
MINIMAL = """
name = "orders"
checkpoint = "checkpoints/orders"
[source]
bootstrap_servers = "localhost:9092"
topics = ["orders"]
[transform]
sql = "SELECT key, value FROM source"
[[sink]]
type = "kafka"
topic = "big-orders"
transactional_id = "orders"
"""

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


@each_document
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []


@each_document
def test_make_targets_exist(document: Path) -> None:
    # Commands stand in backquotes or at the start of a line of a shell block.
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", document.read_text(), re.MULTILINE))
    assert named <= TARGETS


def test_there_is_something_to_check() -> None:
    names = {path.name for path in DOCUMENTS}
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "index.md", *EXECUTED_BY} <= names
    assert {"setup", "demo", "test", "lint", "types", "bench", "chaos", "docs", "clean"} <= TARGETS


# Python.


@pytest.mark.parametrize("example", all_examples("python"), ids=str)
def test_python_examples_compile(example: Example) -> None:
    compile(example.text, str(example), "exec")


def test_every_python_example_is_run_by_a_test() -> None:
    with_python = {example.document.name for example in all_examples("python") if example.reason is None}
    assert with_python == EXECUTED_BY.keys()
    for name, test in EXECUTED_BY.items():
        assert f'"{name}"' in (ROOT / test).read_text(), test
    assert len([example for example in all_examples() if example.reason is not None]) <= NOT_RUN_MAX


def test_both_readmes_have_the_same_examples() -> None:
    ours, theirs = (
        [ast.dump(ast.parse(example.text)) for example in examples(page(name), "python")] for name in READMES
    )
    assert ours == theirs
    assert commands(page(READMES[0])) == commands(page(READMES[1]))


READMES = ("README.md", "README.zh-CN.md")


# Commands.


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The innermost command that the words name, and the rest of them."""
    command: click.Command = cli
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        inner = command.get_command(click.Context(command), words[0])
        assert inner is not None, words
        command, words = inner, words[1:]
    return command, words


@pytest.mark.parametrize("text", COMMANDS)
def test_commands_exist(text: str) -> None:
    words = shlex.split(text)[1:]
    # `broker start|stop` are two commands.
    several = next((word.split("|") for word in words if re.fullmatch(r"[a-z]+(\|[a-z]+)+", word)), [None])
    for one in several:
        command, rest = command_of([one if one and "|" in word else word for word in words])
        known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
        assert {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)} <= known


def test_there_are_commands() -> None:
    names = {text.split()[1] for text in COMMANDS}
    assert {"broker", "init", "check", "run", "verify", "doctor", "lag", "offsets", "transactions", "recover"} <= names


@pytest.mark.parametrize("name", ["doctor", "lag", "offsets", "transactions"])
def test_every_tool_has_a_chapter(name: str) -> None:
    assert f"\n## {name}\n" in page("OPERATIONS.md").read_text()


# Pipeline files.


def merged(fragment: dict[str, Any]) -> dict[str, Any]:
    """A part of a pipeline file within a small whole one."""
    whole = tomllib.loads(MINIMAL)
    for name, value in fragment.items():
        if name == "sink":
            whole[name] = [
                {**(whole[name][0] if sink.get("type", "kafka") == "kafka" else {}), **sink} for sink in value
            ]
        elif isinstance(value, dict):
            whole[name] = {**({} if name == "transform" else whole.get(name, {})), **value}
        else:
            whole[name] = value
    return whole


@pytest.mark.parametrize("example", all_examples("toml"), ids=str)
def test_pipeline_files_are_right(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sparkonce check` finds them."""
    for variable in re.findall(r'env = "(\w+)"', example.text):
        monkeypatch.setenv(variable, "host=localhost dbname=shop")
    whole = example.text.startswith("name = ")
    text = example.text if whole else toml_of(merged(tomllib.loads(example.text)))
    assert load_text(text, tmp_path).problems == []


def test_there_are_pipeline_files() -> None:
    assert len(all_examples("toml")) >= 8


# Error messages.


def templates() -> list[str]:
    """Every text in the sources, with … for what is filled in."""
    found = []
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(parts))
    return [" ".join(re.sub(r"%[sd]", "…", text).split()) for text in found]


def test_messages_in_the_troubleshooting_are_those_of_the_code() -> None:
    text = page("TROUBLESHOOTING.md")
    known = templates()
    quoted = [" ".join(example.text.split()) for example in examples(text, "text")]
    assert len(quoted) > 12
    assert [message for message in quoted if not any(message in template for template in known)] == []
    codes = re.findall(r"`?([A-Z]+(?:_[A-Z]+)+)`? \((\d+)\)", text.read_text())
    assert codes
    assert [(name, code) for name, code in codes if CODES[int(code)][0] != name] == []


# Options.


@pytest.mark.parametrize("option", OPTIONS)
def test_the_source_describes_every_option(option: str) -> None:
    assert f"`{option}`" in page("SOURCE.md").read_text()

"""docs/OPERATIONS.md: every command in it exists, with its options; the tables are those that the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from sparkonce.cli.main import cli

TEXT = (Path(__file__).parents[2] / "docs" / "OPERATIONS.md").read_text()
COMMANDS = sorted(set(re.findall(r"(?:`|\$ )(sparkonce [a-z][^`\n…]*?)(?:`|\n)", TEXT)))


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The innermost command that the words name, and the rest of them."""
    command: click.Command = cli
    while words and isinstance(command, click.Group):
        inner = command.get_command(click.Context(command), words[0])
        assert inner is not None, words
        command, words = inner, words[1:]
    return command, words


@pytest.mark.parametrize("text", COMMANDS)
def test_commands_exist(text: str) -> None:
    command, rest = command_of(shlex.split(text)[1:])
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known


def test_there_are_commands() -> None:
    names = {text.split()[1] for text in COMMANDS}
    assert {"doctor", "lag", "offsets", "transactions", "recover"} <= names


@pytest.mark.parametrize("name", ["doctor", "lag", "offsets", "transactions"])
def test_every_noun_has_a_chapter(name: str) -> None:
    assert f"\n## {name}\n" in TEXT

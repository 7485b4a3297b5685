"""`docs/OPTIONS.md` is what `tools/options_page.py` makes of the code, and leaves nothing out."""

from __future__ import annotations

import inspect
import re

import pytest
from tools.options_page import OWN_WORDS, PAGE, PYTHON_WORDS, options_page

from sparkonce.cli.main import NOUNS
from sparkonce.pipeline.arguments import option_name
from sparkonce.spark import KafkaSource
from sparkonce.spark.source_options import OPTIONS

TEXT = PAGE.read_text()


def test_the_page_is_up_to_date() -> None:
    assert options_page() == TEXT, "run: .venv/bin/python -m tools.options_page"


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_the_source_has_a_row(option: str) -> None:
    [row] = re.findall(rf"^\| `{option}` \|.*\| `(\w+)`[^|]* \|$", TEXT, re.MULTILINE)
    assert row in inspect.signature(KafkaSource).parameters or option_name(row) == option


def test_every_command_has_a_row() -> None:
    assert set(re.findall(r"^\| `sparkonce (\w+)", TEXT, re.MULTILINE)) == set(NOUNS)


def test_words_are_for_options_that_exist() -> None:
    assert {*OWN_WORDS, *PYTHON_WORDS} <= set(OPTIONS)


def test_no_cell_breaks_its_table() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE)
    assert len(tables) > 10
    for table in tables:
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(columns) == 1, table

"""The source's reference names every option."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkonce.spark.source_options import OPTIONS

DOCUMENT = (Path(__file__).parents[2] / "docs" / "SOURCE.md").read_text()


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_described(option: str) -> None:
    assert f"`{option}`" in DOCUMENT

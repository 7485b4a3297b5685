"""Pipeline files of `tests/data/pipelines`, the secrets that they name, and TOML as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "pipelines"
FILES = sorted(FOLDER.glob("*.toml"))
RIGHT = [file for file in FILES if file.name.startswith("right-")]
WRONG = [file for file in FILES if file not in RIGHT]

ENVIRONMENT = {
    "SPARKONCE_TEST_PASSWORD": "hunter2 of the, shop:://",
    "SPARKONCE_TEST_DSN": "host=localhost dbname=shop password=hunter2-dsn",
    "SPARKONCE_TEST_SERVERS": "broker-1:9092,broker-2:9092",
}
HIDDEN = ("hunter2", "broker-1")
"""Words of secrets, which no output may show."""


def quoted(name: str) -> str:
    """A key."""
    bare = name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if bare else json.dumps(name, ensure_ascii=False)


def inline(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(name)} = {inline(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, str | int | float):
        return json.dumps(value, ensure_ascii=False)
    return str(value.isoformat())


def toml_of(table: dict[str, Any]) -> str:
    """A whole text, each key of the top on a line of its own."""
    return "".join(f"{quoted(name)} = {inline(value)}\n" for name, value in table.items())

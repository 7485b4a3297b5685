"""The text of a trigger, as Spark reads intervals of processing time."""

from __future__ import annotations

import re

from sparkonce.errors import UsageError

AVAILABLE_NOW = "available-now"
UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week")
_PART = r"\d+(?:\.\d+)?\s+[a-z]+"


def require_trigger(text: str) -> None:
    """UsageError unless Spark can read it."""
    if text == AVAILABLE_NOW:
        return
    wanted = f'expected an interval such as "1 second" or "500 milliseconds", or "{AVAILABLE_NOW}"'
    plain = text.strip().lower().removeprefix("interval ").strip()
    if not re.fullmatch(rf"{_PART}(?:\s+{_PART})*", plain):
        hint = ""
        if short := re.fullmatch(r"(\d+)\s*(ms|s|m|min|h)", plain):
            names = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours"}
            unit = names[short[2]]
            hint = f'; write "{short[1]} {unit.removesuffix("s") if short[1] == "1" else unit}"'
        raise UsageError(f'is "{text}"; {wanted}{hint}')
    for unit in re.findall(r"[a-z]+", plain):
        if unit.removesuffix("s") not in UNITS:
            raise UsageError(f'is "{text}", and {unit} is no unit of time that Spark takes here; {wanted}')

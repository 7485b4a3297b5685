"""The environment of programs that start Spark by themselves, for some seconds."""

from __future__ import annotations

import os

from sparkonce.spark.session import QUICK_JAVA_OPTIONS


def quick_environment(**more: str) -> dict[str, str]:
    """This one, with a Java that starts quickly."""
    return {**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA_OPTIONS, **more}

"""Settings for Spark sessions that live for seconds: starting them is most of their work."""

from __future__ import annotations

import os

_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half compiled at once is better than well compiled when it is over."""
QUICK_SPARK = {
    "spark.sql.shuffle.partitions": "2",
    # The stack is that of `local_session`.
    "spark.driver.extraJavaOptions": f"-Xss16m {_JAVA}",
}


def quick_environment(**more: str) -> dict[str, str]:
    """For programs that start Spark by themselves."""
    return {**os.environ, "JAVA_TOOL_OPTIONS": _JAVA, **more}

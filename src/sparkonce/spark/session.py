"""A Spark session on this machine, for demos, tests and pipelines that have no cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from sparkonce.java import spark_java_home

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# Stopping a query while its callback runs a job can overflow the stream thread's default stack.
_JAVA_OPTIONS = f"-Xss16m -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
}
QUICK_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half compiled at once is better than well compiled when it is over."""
SHORT_LIVED = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} {QUICK_JAVA_OPTIONS}",
}
"""Settings for sessions that live for seconds: starting them is most of their work."""


def local_session(name: str, master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Starts Spark with the Java and the Python of this environment, unless the caller has chosen others."""
    os.environ.setdefault("JAVA_HOME", str(spark_java_home()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()

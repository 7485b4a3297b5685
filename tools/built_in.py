"""Fetches Spark's own Kafka connector, to be compared with and to be used together, for the Spark of this environment.

The newest one that can be had everywhere is that of Spark 4.2, which runs in 4.3; of its module for delegation tokens,
which is linked but has nothing to do here, the one of 4.0.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from sparkonce.devbroker import ivy
from sparkonce.devbroker.trust import trust_options
from sparkonce.java import cache_folder, find_java

JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
SECONDS = 300


def connector() -> str:
    """The jars as `spark.jars` takes them; fetched if they are not there."""
    folder = cache_folder() / f"built-in-{JARS[0][2]}"
    files = [folder / f"{name}-{version}.jar" for _, name, version in JARS]
    if not all(file.exists() for file in files):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            for fetched in fetch(Path(work)):
                fetched.replace(folder / fetched.name)
    return ",".join(map(str, files))


def fetch(work: Path) -> list[Path]:
    """The jars, and nothing that they need: it is in Spark."""
    wanted = (f'<dependency org="{org}" name="{name}" rev="{rev}" transitive="false"/>' for org, name, rev in JARS)
    module, jars = work / "ivy.xml", work / "jars"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="sparkonce" module="built-in"/>'
        '<configurations><conf name="default"/></configurations>'
        f'<dependencies defaultconf="default->default">{"".join(wanted)}</dependencies></ivy-module>'
    )
    trusted = trust_options(work / "trust.jks")
    command = ivy.ivy_command(find_java(), ivy.find_ivy(), module, work / "cache", jars, trusted)
    subprocess.run(command, check=True, timeout=SECONDS)
    return list(jars.glob("*.jar"))

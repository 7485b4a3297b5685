"""Fetches Kafka's jars with the Ivy that comes inside pyspark, so that nothing else has to be installed.

Knows what to ask Ivy for and how to read what it says; not where the jars end up. Which registry is asked is Ivy's
own default, or what the user's Ivy settings file says (SPARKONCE_IVY_SETTINGS).
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker.trust import trust_options
from sparkonce.errors import RetriableError, UsageError
from sparkonce.java import Java

KAFKA_VERSION = "4.3.1"
SCALA_VERSION = "2.13"
LOG4J_VERSION = "2.25.4"
"""The version that Kafka itself brings; it logs through slf4j 1.7, hence `log4j-slf4j-impl` and not `…-slf4j2-impl`."""

# The tools need neither Connect nor its web server, which would double the number of jars.
MODULE = f"""\
<ivy-module version="2.0">
  <info organisation="sparkonce" module="devbroker"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->default">
    <dependency org="org.apache.kafka" name="kafka_{SCALA_VERSION}" rev="{KAFKA_VERSION}"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="{LOG4J_VERSION}"/>
    <exclude org="org.apache.kafka" module="connect-runtime"/>
    <exclude org="com.fasterxml.jackson.jakarta.rs"/>
  </dependencies>
</ivy-module>
"""
NETWORK_OPTIONS = ("-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000")
"""Ivy itself waits without a bound."""
ADVICE = (
    "Check the network and run it again: what was fetched is kept. Behind a mirror, write an Ivy settings file and set "
    "SPARKONCE_IVY_SETTINGS to its path; behind a proxy, set HTTPS_PROXY."
)


@dataclass(frozen=True, slots=True)
class FetchState:
    """How far Ivy is, read from its output."""

    found: int
    fetched: int
    fetched_bytes: int

    def __str__(self) -> str:
        if not self.fetched:
            return f"{self.found} modules found"
        return f"{self.fetched} of {self.found} jars, {self.fetched_bytes / 1e6:.0f} MB"


def retrieve(java: Java, work: Path, cache: Path, deadline: Deadline, report: Callable[[FetchState], None]) -> Path:
    """Fills a new folder below `work` with all jars and returns it."""
    module, log, jars = work / "ivy.xml", work / "ivy.log", work / "jars"
    module.write_text(MODULE, encoding="ascii")
    jars.mkdir()
    command = ivy_command(java, find_ivy(), module, cache, jars, trust_options(work / "trust.jks"))
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=work
        ) as process,
    ):
        try:
            ended = wait_until(lambda: ended_or_reported(process, log, report), deadline)
        finally:
            process.kill()
    said = log.read_text(encoding="utf-8", errors="replace")
    if not ended:
        raise RetriableError(f"Fetching Kafka's jars took too long; {fetch_state(said)} so far. {ADVICE}")
    if process.returncode != 0:
        lines = "".join(f"\n  {line}" for line in error_lines(said))
        raise RetriableError(f"Kafka's jars could not be fetched. {ADVICE}\nThe last words of Ivy:{lines}")
    return jars


def ended_or_reported(process: subprocess.Popen[bytes], log: Path, report: Callable[[FetchState], None]) -> bool:
    """Reports the progress on the way to the end."""
    report(fetch_state(log.read_text(encoding="utf-8", errors="replace")))
    return process.poll() is not None


def ivy_command(
    java: Java, ivy: Path, module: Path, cache: Path, jars: Path, java_options: Sequence[str] = ()
) -> list[str]:
    """Resolves the module and copies its jars."""
    settings = os.environ.get("SPARKONCE_IVY_SETTINGS")
    return [
        str(java.executable),
        *NETWORK_OPTIONS,
        *java_options,
        *proxy_options(urllib.request.getproxies().get("https")),
        "-jar",
        str(ivy),
        *(["-settings", settings] if settings else []),
        "-cache",
        str(cache),
        "-ivy",
        str(module),
        "-confs",
        "default",
        "-types",
        "jar",
        "bundle",
        "-retrieve",
        f"{jars}/[artifact]-[revision](-[classifier]).[ext]",
    ]


def find_ivy() -> Path:
    """The Ivy jar of pyspark. Pyspark is only looked up, not imported: that is the spark layer's right alone."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise UsageError("pyspark is not installed; its Ivy is needed to fetch Kafka. Run: pip install pyspark")
    jars = sorted(Path(found.origin).parent.joinpath("jars").glob("ivy-*.jar"))
    if not jars:
        raise UsageError("This pyspark has no Ivy jar; install pyspark from PyPI, which has one.")
    return jars[-1]


def proxy_options(proxy: str | None) -> list[str]:
    """Java does not read HTTPS_PROXY by itself."""
    address = urllib.parse.urlsplit(proxy) if proxy else None
    if address is None or address.hostname is None:
        return []
    port = [f"-Dhttps.proxyPort={address.port}"] if address.port else []
    return [f"-Dhttps.proxyHost={address.hostname}", *port]


def fetch_state(output: str) -> FetchState:
    """Counts what Ivy has found and fetched."""
    sizes = [int(kilobytes) for kilobytes in re.findall(r"\((\d+)kB\)", output)]
    return FetchState(
        found=output.count("\tfound "), fetched=output.count("[SUCCESSFUL ]"), fetched_bytes=sum(sizes) * 1000
    )


def error_lines(output: str, count: int = 8) -> list[str]:
    """The lines that say what went wrong, each once; the last lines when none does."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" \t:")]
    wrong = [line for line in lines if re.search(r"Exception|error|not found|FAILED|UNRESOLVED|denied", line)]
    return list(dict.fromkeys(wrong or lines))[-count:]

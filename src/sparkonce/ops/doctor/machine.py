"""What this machine would run Spark with. The workers of a cluster have their own, which are not seen from here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sparkonce.errors import UsageError
from sparkonce.java import find_java
from sparkonce.ops.doctor.facts import MachineFacts

_ASK_SECONDS = 20
_QUESTION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"


def machine_facts() -> MachineFacts:
    """Asks Java and, if it is another one, the workers' Python."""
    worker, worker_error = _worker_python()
    java, java_error = _java()
    return MachineFacts(
        python=tuple(sys.version_info[:3]),
        worker_python=worker,
        worker_python_error=worker_error,
        java=java,
        java_error=java_error,
        pyspark=_installed("pyspark"),
    )


def _java() -> tuple[str | None, str | None]:
    try:
        found = find_java()
    except UsageError as error:
        return None, str(error)
    return f"{found.version} ({found.origin})", None


def _worker_python() -> tuple[str | None, str | None]:
    program = os.environ.get("PYSPARK_PYTHON")
    if not program or shutil.which(program) == sys.executable or Path(program) == Path(sys.executable):
        return None, None
    try:
        answer = subprocess.run(
            [program, "-c", _QUESTION], capture_output=True, text=True, timeout=_ASK_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"PYSPARK_PYTHON={program} does not run: {error}"
    return answer.stdout.strip(), None


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

"""Makes `.venv` from the lock files: every step shown, nothing downloaded twice.

Runs on a bare Python 3.11+ (standard library only), so it must not import anything of the project.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "setup.sha256"
INPUTS = [
    ROOT / name for name in ("pyproject.toml", "requirements/dev.lock", "requirements/java.lock", "tools/setup.py")
]
JAVA_VERSIONS = range(17, 26)


def main() -> None:
    """Brings `.venv` up to date; a second run returns at once."""
    if sys.version_info < (3, 11):  # noqa: UP036  This runs before anything has checked the version.
        sys.exit(
            f"sparkonce needs Python 3.11 or later; this is {sys.version.split()[0]}. Try: make PYTHON=python3.12 …"
        )
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    step("creating .venv", create_environment)
    step("installing the locked dependencies (about 600 MB unpacked, Spark is the largest)", install_locked)
    if not system_java():
        step("no Java 17 or later found: installing a Java runtime into .venv", install_java)
    step("fetching Apache Kafka for the dev broker", lambda: run(VENV / "bin" / "sparkonce", "broker", "fetch"))
    step("compiling the record kernels", lambda: run(PYTHON, "-m", "sparkonce.records.warm"))
    STAMP.write_text(wanted)


def fingerprint() -> str:
    """Changes when anything that decides the environment's content changes."""
    digest = hashlib.sha256(sys.version.encode())
    for path in INPUTS:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def create_environment() -> None:
    """A fresh environment: an old one may hold packages that the lock no longer has."""
    if VENV.exists():
        shutil.rmtree(VENV)
    try:
        run(sys.executable, "-m", "venv", VENV)
    except subprocess.CalledProcessError:
        sys.exit("Python's venv module does not work here. On Debian and Ubuntu: apt-get install python3-venv")


def install_locked() -> None:
    """Installs exactly what the lock says, then the package itself, editable."""
    pip("install", "--require-hashes", "-r", ROOT / "requirements" / "dev.lock")
    pip("install", "--no-deps", "--no-build-isolation", "-e", ROOT)


def install_java() -> None:
    """The runtime that `sparkonce.java` finds when the system has none."""
    pip("install", "--require-hashes", "-r", ROOT / "requirements" / "java.lock")


def system_java() -> bool:
    """Whether JAVA_HOME or the path has a Java that Spark and Kafka can run on."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if not java:
        return False
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return False
    found = re.search(r'version "(\d+)', answer)
    return bool(found and int(found[1]) in JAVA_VERSIONS)


def pip(*arguments: str | Path) -> None:
    """Pip of the environment, with its own progress bars."""
    run(
        PYTHON,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        *arguments,
        "--quiet" if quiet() else "--progress-bar=on",
    )


def quiet() -> bool:
    """No progress bars where nobody looks."""
    return not sys.stdout.isatty()


def run(*command: str | Path) -> None:
    """Runs one command in the project's root; its output is the user's."""
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def step(title: str, action: Callable[[], None]) -> None:
    """One line before, one line after, so that a slow step never looks like a hang."""
    print(f"» {title} …", flush=True)
    begun = time.monotonic()
    try:
        action()
    except subprocess.CalledProcessError as error:
        sys.exit(f"✗ {title}: `{' '.join(error.cmd[:4])} …` ended with code {error.returncode}; its output is above.")
    print(f"  done in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()

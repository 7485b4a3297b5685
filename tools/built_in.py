"""Makes `.venv-built-in`: Spark 4.0.0 with its own Kafka connector, to be compared with. Nothing of ours goes into it.

The connector's jars are fetched by Spark itself when a session asks for them (`PACKAGE`).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-built-in"
LOCK = ROOT / "requirements" / "built-in.lock"
STAMP = ENVIRONMENT / "setup.sha256"


def main() -> None:
    """Brings the environment up to date; a second run returns at once."""
    wanted = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    print("» installing Spark 4.0.0 to compare with, into .venv-built-in (about 400 MB) …", flush=True)
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--quiet", "--require-hashes", "-r", str(LOCK)], check=True)
    STAMP.write_text(wanted)


if __name__ == "__main__":
    main()

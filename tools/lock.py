"""Writes `requirements/*.lock` from pyproject.toml, for every Python and platform at once, with hashes."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = str(Path(sys.executable).with_name("uv"))
COMPILE = [
    UV,
    "pip",
    "compile",
    "--universal",
    "--generate-hashes",
    "--python-version",
    "3.11",
    "--upgrade",
    "--quiet",
]
COMPILE += ["--no-emit-index-url", "--custom-compile-command", "make lock"]


def main() -> None:
    """The runtime and development packages in one lock, the optional Java in another."""
    write_lock("dev.lock", "pyproject.toml", "--group", "dev")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    write_lock("java.lock", "-", requirements="\n".join(project["optional-dependencies"]["java"]))


def write_lock(name: str, source: str, *extra: str, requirements: str = "") -> None:
    """Resolves `source` (or `requirements`, as standard input) into one lock file."""
    output = ROOT / "requirements" / name
    command = [*COMPILE, *extra, source, "-o", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, input=requirements, text=True)
    print(f"{output.relative_to(ROOT)}: {output.read_text().count('==')} packages")


if __name__ == "__main__":
    main()

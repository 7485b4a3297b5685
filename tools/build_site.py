"""Builds the documentation site into build/site; says something only if there is something wrong with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "site"


def main() -> None:
    """A warning is an error."""
    wrong = build(FOLDER)
    if wrong:
        sys.exit(wrong)


def build(folder: Path) -> str:
    """What is wrong; empty if the site was built without a warning."""
    # With MkDocs' own --quiet, warnings would neither be shown nor counted.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("INFO ")]
    return "\n".join(said) if done.returncode == 0 else "\n".join([*said, "The site was not built."])


if __name__ == "__main__":
    main()

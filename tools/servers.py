"""The database servers that the tests start themselves: where their programs are, and installing what is missing.

Runs on a bare Python 3.11+ (standard library only). Only Debian's packages are installed, and only by root; everybody
else is told what to install. No service is left running: tests start servers of their own, in folders of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")
REFUSE_STARTS = "#!/bin/sh\nexit 101\n"
"""Debian's package scripts ask this program whether a service may be started; 101 is no."""


def postgres_folder() -> Path | None:
    """Where `initdb` and `postgres` are: on the path, or where Debian puts them, the newest version first."""
    found = shutil.which("postgres")
    if found:
        return Path(found).parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    return max((path.parent for path in versions), key=lambda folder: float(folder.parent.name), default=None)


def mariadb_program() -> Path | None:
    """MariaDB's server. MySQL's is not looked for: the tests are written for MariaDB."""
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


PACKAGES: dict[str, Callable[[], Path | None]] = {"postgresql": postgres_folder, "mariadb-server": mariadb_program}


def missing() -> list[str]:
    """The Debian packages to install."""
    return [package for package, find in PACKAGES.items() if find() is None]


def advice(packages: list[str]) -> str:
    """What a person has to do."""
    return (
        f"the tests need the servers of {' and '.join(packages)}, which are not here. Install them, on Debian and "
        f"Ubuntu with: sudo apt-get install --no-install-recommends {' '.join(packages)}"
    )


def main() -> None:
    """Installs what is missing; a second run returns at once."""
    packages = missing()
    if not packages:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"» {advice(packages)}", flush=True)
        return
    print(f"» installing {' and '.join(packages)} for the tests …", flush=True)
    with services_refused():
        apt("update")
        apt("install", "--yes", "--no-install-recommends", *packages)
    still_missing = missing()
    if still_missing:
        sys.exit(f"✗ apt-get went well, but {advice(still_missing)}")


def apt(*arguments: str) -> None:
    """One call of apt-get, without questions; its output only if it fails."""
    command = ["apt-get", "--quiet", *arguments]
    done = subprocess.run(
        command, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}\n✗ `{' '.join(command)}` ended with code {done.returncode}")


@contextmanager
def services_refused() -> Iterator[None]:
    """Meanwhile no package can start its service."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text(REFUSE_STARTS)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


if __name__ == "__main__":
    main()

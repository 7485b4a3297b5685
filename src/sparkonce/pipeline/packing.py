"""The packages that a cluster's workers need, as one archive: this one and what it depends on, without pyspark.

Workers must have the same Python, major and minor, and nothing else: compiled packages are for one version of it.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import sparkonce

PACKAGE = "sparkonce"
OWN_MODULES = ("sparkonce", "pyspark_sparkonce")
FROM_THE_CLUSTER = ("pyspark", "py4j")
"""What every worker of a Spark cluster has."""
_SKIPPED = re.compile(r"(^|/)(tests?|__pycache__|include)/|\.(pyi|pyc|nbi|nbc|a|h|hpp|pyx|pxd)$")
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"extra == [\"']([^\"']+)[\"']")
_ALL = "*"


def needed() -> list[Distribution]:
    """All installed packages that this one needs, directly or not; its own extras too, where they are installed."""
    found: dict[str, Distribution] = {}
    waiting = [(PACKAGE, _ALL)]
    while waiting:
        name, extras = waiting.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # Of an extra, or for another system.
        key = _plain(package.name)
        if key not in FROM_THE_CLUSTER and (key not in found or extras):
            found[key] = package
            waiting += _required(package, extras)
    return [package for key, package in sorted(found.items()) if key != PACKAGE]


def _required(package: Distribution, extras: str) -> list[tuple[str, str]]:
    """Names, each with the extras that are asked for; without versions and conditions."""
    required = []
    for text in package.requires or ():
        wanted, parts = _EXTRA.search(text), _REQUIREMENT.match(text)
        if parts and (wanted is None or extras == _ALL or wanted[1] in extras.split(",")):
            required.append((parts[1], parts[2] or ""))
    return required


def packed(folder: Path) -> Path:
    """The archive, made anew only when a version or a file of ours has changed."""
    files = sorted({*_own_files(), *_files(needed())})
    digest = hashlib.sha256()
    for inside, path in files:
        digest.update(f"{inside} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
    archive = folder / f"sparkonce-{digest.hexdigest()[:16]}.tar"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = archive.with_suffix(".draft")
        with tarfile.open(draft, "w") as tar:
            for inside, path in files:
                tar.add(path, inside)
        draft.rename(archive)
    return archive


def _own_files() -> Iterator[tuple[str, Path]]:
    """Of the source folder, where the package is installed in place."""
    root = Path(sparkonce.__file__).parents[1]
    for module in OWN_MODULES:
        for path in (root / module).rglob("*"):
            inside = path.relative_to(root).as_posix()
            if path.is_file() and not _SKIPPED.search(inside):
                yield inside, path


def _files(packages: list[Distribution]) -> Iterator[tuple[str, Path]]:
    for package in packages:
        for file in package.files or ():
            inside, path = file.as_posix(), Path(str(file.locate()))
            if not inside.startswith("..") and not _SKIPPED.search(inside) and path.is_file():
                yield inside, path


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

"""The documents: links lead somewhere, every make target exists, Python examples compile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_exist(document: Path) -> None:
    # Commands stand in backquotes or at the start of a line of a shell block.
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", document.read_text(), re.MULTILINE))
    assert named <= TARGETS


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_examples_compile(document: Path) -> None:
    for example in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        compile(example, str(document), "exec")


def test_there_is_something_to_check() -> None:
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"} <= {path.name for path in DOCUMENTS}
    assert {"setup", "demo", "test", "lint", "types", "bench", "chaos", "docs", "clean"} <= TARGETS

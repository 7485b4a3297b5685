"""What the documents hold, for the tests that run it: examples by language, commands, and who runs what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PLACES = ("localhost:19092", "localhost:9092", "127.0.0.1:19092", "127.0.0.1:9092")
"""Brokers in the examples; the tests put their own in the place of them."""
CHECKPOINTS = "checkpoints/"
"""Where checkpoints are in the examples; Spark resolves it against the folder in which its Java was started."""

EXECUTED_BY = {
    "README.md": "tests/broker/test_readme.py",
    "README.zh-CN.md": "tests/unit/test_docs.py",  # It has the program of the other one.
    "QUICKSTART.md": "tests/cluster/test_docs_quickstart.py",
    "COOKBOOK.md": "tests/cluster/test_docs_examples.py",
    "SOURCE.md": "tests/cluster/test_docs_examples.py",
    "PIPELINES.md": "tests/cluster/test_docs_examples.py",
    "OPERATIONS.md": "tests/cluster/test_docs_examples.py",
    "MIGRATION.md": "tests/cluster/test_docs_examples.py",
    "DATABASES.md": "tests/servers/test_docs_databases.py",
}
"""Which test runs the Python examples of a document. The cookbook's last recipe is run with those of the databases."""

_FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Example:
    """A block of code in a document."""

    document: Path
    section: str
    """The nearest heading above it."""
    line: int
    language: str
    text: str
    reason: str | None
    """Why it is not run; None: it is."""

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"


def page(name: str) -> Path:
    """The document of this name."""
    return next(document for document in DOCUMENTS if document.name == name)


def examples(document: Path, *languages: str) -> list[Example]:
    """The blocks of a document, in order."""
    text = document.read_text()
    found = []
    for match in _FENCE.finditer(text):
        if languages and match["language"] not in languages:
            continue
        before = text[: match.start()]
        headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", before), re.MULTILINE)
        line = before.count("\n") + 1
        reason = match["reason"]
        found.append(
            Example(document, headings[-1] if headings else "", line, match["language"], match["text"], reason)
        )
    return found


def all_examples(*languages: str) -> list[Example]:
    """Of all documents."""
    return [example for document in DOCUMENTS for example in examples(document, *languages)]


def commands(document: Path) -> list[str]:
    """Every `sparkonce …` in a document: between backquotes, behind a prompt, or in a line of a shell block."""
    text = document.read_text()
    prose = _FENCE.sub("", text)
    found = re.findall(r"`(sparkonce (?:[a-z]|--)[^`]*?)`", " ".join(prose.split()))
    for example in examples(document):
        prompt = r"^(?:\.venv/bin/)?" if example.language in ("sh", "bash") else r"^\$ "
        found += re.findall(rf"{prompt}(sparkonce .*?)(?: +# .*| > .*)?$", example.text, re.MULTILINE)
    return sorted(set(found))


def localised(text: str, bootstrap_servers: str, folder: Path) -> str:
    """An example with this broker and these checkpoints."""
    for place in PLACES:
        text = text.replace(place, bootstrap_servers)
    return text.replace(f'"{CHECKPOINTS}', f'"{folder}/{CHECKPOINTS}')

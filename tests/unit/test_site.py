"""The documentation site: it is built without a warning, and needs nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.documents import ROOT

WARNED = "NO_MKDOCS_2_WARNING"


def test_the_site(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, WARNED: "1"}, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    pages = sorted(tmp_path.glob("*.html"))
    assert {page.stem for page in ROOT.glob("docs/*.md")} | {"404"} == {page.stem for page in pages}
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*src="?([^" >]+)', text)
        loaded += re.findall(r'<link[^>]*rel="?(?:stylesheet|preload|icon|preconnect)"?[^>]*', text)
        assert [address for address in loaded if "//" in address] == []
        assert "scripts/iframe-worker.js" in text
    # What the picture and the tables hold has survived the way through Markdown.
    assert "{ orders = [0, 1] }" in (tmp_path / "OPTIONS.html").read_text()
    assert 'src="pictures/protocol.svg"' in (tmp_path / "CONCEPTS.html").read_text()

"""The documentation site: it is built without a warning, and needs nothing from other hosts."""

from __future__ import annotations

import re
from pathlib import Path

from tools.build_site import build

from tests.documents import ROOT


def test_the_site(tmp_path: Path) -> None:
    assert build(tmp_path) == ""
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

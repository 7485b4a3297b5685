"""`sparkonce demo`, small, as a user runs it."""

from __future__ import annotations

import subprocess
import sys


def test_the_demo_reads_back_what_it_wrote() -> None:
    command = [sys.executable, "-m", "sparkonce", "demo", "--records", "150000", "--codec", "zstd"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "150,000 read back, equal to what was written" in answer.stdout
    assert "encode, compress, seal, send" in answer.stdout

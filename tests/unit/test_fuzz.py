"""The short run of the decoder's fuzzer; `make fuzz` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FUZZER = Path(__file__).parents[2] / "tools" / "fuzz_decode.py"


def test_twenty_thousand_mutated_batches() -> None:
    answer = subprocess.run([sys.executable, FUZZER, "--count", "20000"], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "20000 cases" in answer.stdout

"""The compiled kernels: compiled once a machine, for one signature each, and usable where nothing can be cached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPORT = """
from sparkonce.records import kernels
found = [kernel for name, kernel in vars(kernels).items() if hasattr(kernel, "signatures") and not name.startswith("_")]
compiled = sum(kernel.stats.cache_misses != {} for kernel in found)
print(len(found), compiled, max(len(kernel.signatures) for kernel in found))
"""


def kernels_compiled_signatures(cache: Path) -> tuple[int, ...]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    answer = subprocess.run([sys.executable, "-c", REPORT], check=True, capture_output=True, text=True, env=environment)
    return tuple(int(word) for word in answer.stdout.split())


def test_only_the_first_process_compiles(tmp_path: Path) -> None:
    assert kernels_compiled_signatures(tmp_path) == (6, 6, 1)
    assert kernels_compiled_signatures(tmp_path) == (6, 0, 1)


def test_a_machine_without_a_folder_for_the_cache_compiles_every_time(tmp_path: Path) -> None:
    blocked = tmp_path / "a file, not a folder"
    blocked.touch()
    assert kernels_compiled_signatures(blocked)[0] == 6

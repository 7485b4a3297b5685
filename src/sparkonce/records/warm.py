"""`python -m sparkonce.records.warm` compiles the kernels into numba's disk cache: later processes only load."""

from __future__ import annotations

import sparkonce.records.kernels  # noqa: F401  Importing compiles: every kernel has an explicit signature.

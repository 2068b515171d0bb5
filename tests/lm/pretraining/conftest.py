"""Tests of pretraining compile much and compute little: half the time without optimisation."""

from __future__ import annotations

import os

# Read when JAX starts its first device; programs that tests start inherit it.
_QUICK_COMPILATION = "--xla_backend_optimization_level=0"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_QUICK_COMPILATION}".strip()

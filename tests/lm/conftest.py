"""Tests are collected where the packages of their extra are installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_TRAIN = ("torch", "transformers", "peft", "accelerate", "tokenizers")
_NEEDED = {
    "batches": _TRAIN,
    "curation": _TRAIN,
    "features": _TRAIN,
    "finetune": _TRAIN,
    "pretraining": ("jax", "optax", "orbax", "tokenizers"),
    "test_answers.py": ("sympy",),
    "test_answers_golds.py": ("sympy",),
    "test_answers_table.py": ("sympy",),
    "test_number_notations.py": ("sympy",),
    "test_evaluate_cli.py": _TRAIN,
    "test_language_model.py": _TRAIN,
    "test_batch_selector.py": (),
    "test_corpus.py": (),
    "test_overlap.py": (),
    "test_pools.py": (),
}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    of_room = _NEEDED.get(collection_path.parent.name, ())
    needed = _NEEDED.get(collection_path.name, of_room)
    return True if any(find_spec(name) is None for name in needed) else None

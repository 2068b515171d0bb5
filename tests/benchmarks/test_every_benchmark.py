"""Every benchmark that needs no data, GPU or other library runs in its quick size."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from benchmarks.__main__ import NAMES, run

NEED_DATA_OR_GPU = {
    *("peers", "features", "resolve", "certificate"),
    *("leaks", "gpu", "training_step", "pretraining_step"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - NEED_DATA_OR_GPU))
def test_a_quick_run_measures_something(name: str, tmp_path: Path) -> None:
    assert importlib.import_module(f"benchmarks.{name}").TITLE
    if run(name, quick=True, folder=tmp_path) == 1:
        pytest.skip("this system lacks what it measures")
    found = json.loads((tmp_path / f"{name}-quick.json").read_text())
    assert found["finished"]
    assert any("unavailable" not in row for row in found["rows"])

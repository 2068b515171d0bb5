"""What several tests of judging need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Models as small as those of tests only wait for a second thread."""
    torch = pytest.importorskip("torch", reason="needs the extra 'judge'")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights, far from ties, that reads and writes single characters."""
    for module in ("torch", "transformers", "tokenizers", "peft", "accelerate"):
        pytest.importorskip(module, reason="needs the extras 'judge' and 'train'")
    from support.finetuning import tiny_model

    return Path(tiny_model(tmp_path_factory.mktemp("model"), positions=256, spread=0.5))

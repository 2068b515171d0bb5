"""Shards on disk, and one local Ray for all tests that can share it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uniproto.scale.cluster import Cluster

WIDTH, ROWS, SHARDS = 6, 240, 4


def _write_shards(folder: Path, seed: int = 0, rows: int = ROWS, shards: int = SHARDS) -> str:
    """Rows with a name, a weight, a class and a vector; returns the pattern of their files."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(rows, WIDTH)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    for place, part in enumerate(np.array_split(np.arange(rows), shards)):
        table = {
            "name": [f"row {row}" for row in part],
            "weight": random.random(len(part)),
            "class": [f"class {row % 3}" for row in part],
            "vector": list(vectors[part]),
        }
        pq.write_table(pa.table(table), folder / f"part-{place}.parquet")
    return str(folder / "*.parquet")


@pytest.fixture(scope="session")
def write_shards() -> Callable[..., str]:
    return _write_shards


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _write_shards(tmp_path_factory.mktemp("shards") / "pool")


@pytest.fixture(scope="session")
def aim(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _write_shards(tmp_path_factory.mktemp("shards") / "aim", seed=1, rows=150, shards=2)


_RAY = Cluster(num_cpus=2)  # takes longer to start than most tests take with it


@pytest.fixture
def local_ray() -> None:
    """A Ray with two workers, to which everything connects."""
    if not pytest.importorskip("ray").is_initialized():
        _RAY.__enter__()


@pytest.fixture(scope="module")
def no_ray() -> None:
    """Not the Ray that other tests have left running."""
    _RAY.__exit__()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop Ray after the last test in a row that is in this folder."""
    if nextitem is None or nextitem.path.parent != item.path.parent:
        _RAY.__exit__()

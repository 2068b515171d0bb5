"""The rows that `few` chooses from: mixtures, pictures, tables and embedded texts."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import MissingDataError, Rows, data_folder, mixture, mnist, unit_rows


@dataclass(frozen=True)
class Data:
    """Rows by name: a mixture or a published data set."""

    name: str
    n: int
    metric: str  # "euclidean", or "cosine": then rows have length 1
    width: int = 0  # of a mixture, as the next two
    components: int = 0
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}" if self.width else self.name

    def rows(self) -> Rows:
        if self.width:
            decaying = self.width > 5
            rows = mixture(self.n, self.width, self.components, self.seed, decaying=decaying)
        elif self.name == "mnist":
            rows = mnist(self.n)
        elif self.name == "questions":
            rows = _embedded_questions()
        else:
            rows = _published(self.name)
        if len(rows) != self.n:
            raise MissingDataError(f"{self.name} has {len(rows):,} rows instead of {self.n:,}.")
        return unit_rows(rows) if self.metric == "cosine" else rows


@dataclass(frozen=True)
class Problem:
    """Choose k of the rows, with a time limit if the contender has one."""

    data: Data
    k: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.data}, k = {self.k}"


def mixture_5(n: int, seed: int = 1) -> Data:
    return Data(f"mixture {n:,} × 5", n, "euclidean", width=5, components=30, seed=seed)


def mixture_16(n: int, seed: int = 2) -> Data:
    return Data(f"mixture {n:,} × 16", n, "euclidean", width=16, components=200, seed=seed)


SMALL = Problem(mixture_5(20_000), k=50, seconds=5)
LARGE = Problem(mixture_5(196_000), k=50, seconds=5)
MILLION = Problem(mixture_16(1_000_000), k=100, seconds=30)
MNIST = Problem(Data("mnist", 60_000, "cosine"), k=50, seconds=5)
MNIST_MANY = Problem(MNIST.data, k=600, seconds=60)
PROBLEMS = (
    SMALL,
    LARGE,
    MILLION,
    MNIST,
    MNIST_MANY,
    Problem(mixture_16(50_000), k=100, seconds=10),
    Problem(Data("adult", 48_842, "euclidean"), k=50, seconds=5),
    Problem(Data("credit", 30_000, "euclidean"), k=50, seconds=5),
    Problem(Data("letter", 20_000, "euclidean"), k=50, seconds=5),
    Problem(Data("questions", 66_590, "cosine"), k=50, seconds=5),
    *(Problem(mixture_5(20_000, seed), k=50, seconds=5) for seed in (2, 3)),
    *(Problem(mixture_5(196_000, seed), k=50, seconds=5) for seed in (2, 3)),
    *(Problem(mixture_16(50_000, seed), k=100, seconds=10) for seed in (3, 4)),
    Problem(mixture_16(1_000_000, 3), k=100, seconds=30),
)
QUICK_PROBLEMS = (
    Problem(mixture_5(3_000), k=10, seconds=1),
    Problem(Data("digits", 1_797, "cosine"), k=10, seconds=1),
)


def _published(name: str) -> Rows:
    """All rows of a data set, those for training and those for testing."""
    sys.path.append(str(Path(__file__).parents[1] / "experiments"))
    from support.datasets import load_dataset
    from uniproto.errors import InputFileError

    try:
        found = load_dataset(name, None if name == "digits" else data_folder())
    except InputFileError as error:
        raise MissingDataError(str(error)) from error
    return np.concatenate([found.train, found.test]).astype(np.float32)


def _embedded_questions() -> Rows:
    """Mathematical questions embedded by all-MiniLM-L6-v2; the vectors come from a cache later."""
    import pyarrow

    from uniproto.features.text import embed_text

    file = data_folder() / "math" / "math_train.jsonl.zst"
    if not file.exists():
        raise MissingDataError(f"The questions are not at {file}.")
    with pyarrow.input_stream(str(file), compression="zstd") as stream:
        lines = stream.read().split(b"\n")
    texts = [json.loads(line)["instruction"] for line in lines if line]
    return embed_text(texts, progress=False).vectors

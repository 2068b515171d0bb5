"""Balanced sources and long-tailed targets: how `experiments/longtail.py` draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.draws import balanced_source_and_target
from support.published import Dataset

PCA_DIMENSIONS = 50
SMALL_CLASSES = 3  # of a long tail, these count as the minority


@dataclass(frozen=True)
class Setting:
    """One way to draw a source and a target. `share` goes with MNIST, `imbalance` with CIFAR."""

    data: str
    features: str = "as given"  # or "pca", or "unit": rows of length 1
    share: float | None = None
    imbalance: float | None = None
    small: tuple[int, ...] | None = None  # None: every seed draws its own small classes
    metric: str = "cosine"
    per_class: int = 200  # of the source
    size: int | None = 2000  # of the target; None: all that the classes have rows for

    @property
    def skew(self) -> str:
        return f"{self.share:.0%}" if self.share is not None else f"1:{self.imbalance:g}"

    @property
    def columns(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "features": self.features,
            "skew": self.skew,
            "metric": self.metric,
        }


@dataclass(frozen=True)
class Draw:
    """What every method of a unit sees."""

    source: NDArray[np.float32]
    target: NDArray[np.float32]
    labels: NDArray[Any]
    target_labels: NDArray[Any]
    minority: list[Any]
    metric: str


def features_of(data: Dataset, kind: str) -> NDArray[np.float32]:
    rows = data.train.astype(np.float32)
    if kind == "as given":
        return rows
    if kind == "unit":
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)
    some = rows[np.random.default_rng(0).permutation(len(rows))[:5000]]
    middle = some.mean(axis=0)
    axes = np.linalg.eigh(np.cov(some - middle, rowvar=False))[1][:, -PCA_DIMENSIONS:]
    return ((rows - middle) @ axes).astype(np.float32)


def draw_from(data: Dataset, rows: NDArray[np.float32], setting: Setting, seed: int) -> Draw:
    """A balanced source and a skewed target of other rows; the seed decides which."""
    labels = data.train_labels
    classes = np.unique(labels)
    random = np.random.default_rng(seed)
    if setting.share is not None:
        small = setting.small or tuple(random.choice(classes, 2, replace=False).tolist())
        how: dict[str, Any] = {"classes": small, "share": setting.share}
    else:
        order = classes.tolist() if setting.small else random.permutation(classes).tolist()
        small = tuple(order[-SMALL_CLASSES:])
        how = {"imbalance": setting.imbalance, "order": order}
    source, target = balanced_source_and_target(
        labels, setting.per_class, size=setting.size, seed=seed, **how
    )
    return Draw(
        rows[source], rows[target], labels[source], labels[target], list(small), setting.metric
    )

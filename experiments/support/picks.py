"""How crowded the pool is around its rows, for `experiments/curation.py`.

By the kernel density of TSDS: around a row count all whose vectors, at length 1, are less than 0.75
away, the less the farther they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

BANDWIDTH = 0.75  # as TSDS has it
_AT_ONCE = 2048


def densities(rows: Any, pool: Any) -> NDArray[np.float64]:
    """Σ_j max(0, 1 − |x_i − x_j|²/h²) over the pool, for rows x_i at length 1; at least 1.

    >>> east, north = [1.0, 0.0], [0.0, 2.0]
    >>> densities([east, north], [east, east, north]).tolist()
    [2.0, 1.0]
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    unit, others = (
        torch.nn.functional.normalize(torch.as_tensor(np.asarray(each, np.float32)).to(device))
        for each in (rows, pool)
    )
    found = []
    for block in unit.split(_AT_ONCE):
        squares = 2 - 2 * block @ others.T
        found.append((1 - squares / BANDWIDTH**2).clamp(min=0).sum(dim=1).clamp(min=1).cpu())
    return torch.cat(found).double().numpy()


def thinned(pool: Any, count: int, seed: int) -> NDArray[np.intp]:
    """Rows of a pool, drawn with probability 1/density: few of those in a crowd."""
    noise = np.random.default_rng(seed).gumbel(size=len(pool))
    order = np.argsort(np.log(densities(pool, pool)) - noise, kind="stable")
    return np.sort(order[:count])


def described(
    names: Sequence[str], picks: NDArray[np.intp], pool: Any, target: Any
) -> list[Mapping[str, Any]]:
    """For every source (the pool's `names`): its picks, how far they are and how crowded.

    `distance` is the mean cosine distance of the picks to the nearest row of the target, `density`
    the mean density of the pool around them.
    """
    chosen = np.asarray(pool[picks], np.float64)
    unit, wanted = (
        each / np.linalg.norm(each, axis=1, keepdims=True)
        for each in (chosen, np.asarray(target, np.float64))
    )
    distances = 1 - (unit @ wanted.T).max(axis=1)
    crowded = densities(chosen, pool)
    of_source = np.array([names[place] for place in picks])
    return [
        {
            "source": str(source),
            "rows": int((of_source == source).sum()),
            "distance": float(distances[of_source == source].mean()),
            "density": float(crowded[of_source == source].mean()),
        }
        for source in np.unique(of_source)
    ]

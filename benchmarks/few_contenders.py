"""Who takes part in `few`: ways to choose k of many rows, ours and those of other libraries.

Clusters without a row of their own (k-means) become rows by taking, for each centre, the nearest
row that no other centre has. A method that works on a sample gets that many random rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Rows

Indices = NDArray[np.intp]
_BLOCK = 10_000  # rows whose distances are held at once


@dataclass(frozen=True)
class Question:
    """Choose k of these rows; they have length 1 where the metric is cosine."""

    rows: Rows
    k: int
    metric: str  # "euclidean" or "cosine"
    seed: int
    seconds: float  # for those who take a time


@dataclass(frozen=True)
class Contender:
    """A way to choose, and the sizes it is tried at.

    A size is the number of rows in its sample or batch; None means all rows, or as many as the
    library itself takes. `first_size` is set where the size can follow a time: from there it is
    doubled or halved.
    """

    library: str
    choose: Callable[[Question, int | None], Indices]
    sizes: tuple[int | None, ...]
    balances: bool = False  # whether it aims at clusters of equal size
    first_size: int | None = None
    warm_up: tuple[int, int] = (400, 5)  # rows and k of a problem before the clock starts


def nearest_distinct_rows(rows: Rows, centres: NDArray[Any]) -> Indices:
    """For each centre the nearest row that no centre before it has."""
    centres = np.ascontiguousarray(centres, np.float32)
    half_norms = np.einsum("ij,ij->i", rows, rows) / 2
    nearest = np.zeros(len(centres), np.intp)
    lowest = np.full(len(centres), np.inf, np.float32)
    for start in range(0, len(rows), _BLOCK):
        # |row − centre|² / 2 without the centre's part, which is the same for all rows
        block = half_norms[start : start + _BLOCK, None] - rows[start : start + _BLOCK] @ centres.T
        found = block.argmin(axis=0)
        values = block[found, np.arange(len(centres))]
        nearer = values < lowest
        nearest[nearer], lowest[nearer] = start + found[nearer], values[nearer]
    taken: set[int] = set()
    for place, row in enumerate(nearest.tolist()):
        if row in taken:
            distances = half_norms - rows @ centres[place]
            distances[list(taken)] = np.inf
            nearest[place] = row = int(distances.argmin())
        taken.add(row)
    return nearest


# --- on all rows, or on a sample ----------------------------------------------------------------


def of_sample(find: Callable[[Question], Indices]) -> Callable[[Question, int | None], Indices]:
    """Rows found in a random sample of that size."""

    def choose(question: Question, size: int | None) -> Indices:
        sample = _sample(question, size)
        if sample is None:
            return find(question)
        return sample[find(replace(question, rows=question.rows[sample]))]

    return choose


def snapped(
    find: Callable[[Question], NDArray[Any]],
) -> Callable[[Question, int | None], Indices]:
    """Centres found in a random sample of that size, then the nearest of all rows."""

    def choose(question: Question, size: int | None) -> Indices:
        sample = _sample(question, size)
        seen = question if sample is None else replace(question, rows=question.rows[sample])
        return nearest_distinct_rows(question.rows, find(seen))

    return choose


def _sample(question: Question, size: int | None) -> Indices | None:
    if size is None or size >= len(question.rows):
        return None
    return np.random.default_rng(question.seed).permutation(len(question.rows))[:size]


# --- the methods --------------------------------------------------------------------------------


def ours(
    options: Mapping[str, Any], timed: bool = False, greedy: bool = False
) -> Callable[[Question], Indices]:
    """`uniproto.select` with these options of `UniProto`; if timed, with the question's time."""

    def find(question: Question) -> Indices:
        import uniproto

        own = {**options, "seconds": question.seconds} if timed else options
        return uniproto.select(
            question.rows,
            question.k,
            metric=question.metric,
            method=uniproto.Greedy() if greedy else uniproto.UniProto(**own),
            seed=question.seed,
            compute=uniproto.Compute(device="cpu"),
            progress=False,
        ).indices

    return find


def random_rows(question: Question, size: int | None) -> Indices:
    random = np.random.default_rng(question.seed)
    return random.choice(len(question.rows), question.k, replace=False)


def balanced_kmeans(iterations: int) -> Callable[[Question], NDArray[Any]]:
    """k-means-constrained from one start; its default of ten takes ten times as long."""

    def find(question: Question) -> NDArray[Any]:
        from k_means_constrained import KMeansConstrained

        n, k = len(question.rows), question.k
        clusters = KMeansConstrained(
            k,
            size_min=n // k,
            size_max=-(-n // k),
            n_init=1,
            max_iter=iterations,
            random_state=question.seed,
        )
        return clusters.fit(question.rows.astype(np.float64)).cluster_centers_

    return find


def faiss_kmeans(question: Question, size: int | None) -> Indices:
    """k-means on a sample that FAISS draws itself: by default 256 rows per cluster."""
    import faiss

    per_cluster = 256 if size is None else size // question.k
    clusters = faiss.Kmeans(
        question.rows.shape[1],
        question.k,
        seed=question.seed,
        min_points_per_centroid=1,
        max_points_per_centroid=per_cluster,
    )
    clusters.train(question.rows)
    return nearest_distinct_rows(question.rows, clusters.centroids)


def minibatch_kmeans(question: Question) -> NDArray[Any]:
    from sklearn.cluster import MiniBatchKMeans

    clusters = MiniBatchKMeans(question.k, random_state=question.seed)
    return clusters.fit(question.rows).cluster_centers_


def fasterpam(question: Question) -> Indices:
    import kmedoids

    found = kmedoids.fasterpam(_distances(question), question.k, random_state=question.seed)
    return found.medoids.astype(np.intp)


def fasterclara(question: Question, size: int | None) -> Indices:
    """FasterPAM on five samples of 80 + 4k rows; the medoids with the lowest loss on all rows.

    Each sample holds the best medoids so far (Schubert and Rousseeuw 2021, section 5).
    """
    random = np.random.default_rng(question.seed)
    size = min(80 + 4 * question.k, len(question.rows))
    best, lowest = np.empty(0, np.intp), np.inf
    for draw in range(5):
        others = np.setdiff1d(random.permutation(len(question.rows))[:size], best)
        sample = np.concatenate([best, others])[:size]
        part = replace(question, rows=question.rows[sample], seed=question.seed + draw)
        medoids = sample[fasterpam(part)]
        loss = _loss(question, medoids)
        if loss < lowest:
            best, lowest = medoids, loss
    return best


def onebatchpam(question: Question, size: int | None) -> Indices:
    from onebatch import OneBatchPAM

    clusters = OneBatchPAM(
        question.k,
        distance=question.metric,
        batch_size="auto" if size is None else size,
        random_state=question.seed,
    )
    return np.asarray(clusters.fit(question.rows).medoid_indices_, np.intp)


def banditpam(question: Question) -> Indices:
    from banditpam import KMedoids

    clusters = KMedoids(n_medoids=question.k, algorithm="BanditPAM")
    clusters.seed = question.seed
    clusters.fit(question.rows, {"euclidean": "L2", "cosine": "cos"}[question.metric])
    return np.asarray(clusters.medoids, np.intp)


def apricot_greedy(question: Question) -> Indices:
    """Lazy greedy facility location."""
    from apricot import FacilityLocationSelection

    distances = _distances(question).astype(np.float64)
    selector = FacilityLocationSelection(question.k, metric="precomputed", optimizer="lazy")
    selector.fit(distances.max() - distances)
    return np.asarray(selector.ranking, np.intp)


def _distances(question: Question, to: Rows | None = None) -> Rows:
    from sklearn.metrics import pairwise_distances

    return pairwise_distances(question.rows, to, metric=question.metric)


def _loss(question: Question, medoids: Indices) -> float:
    """Sum of the distances to the nearest medoid."""
    to, n = question.rows[medoids], len(question.rows)
    parts = (question.rows[start : start + _BLOCK] for start in range(0, n, _BLOCK))
    return sum(
        float(_distances(replace(question, rows=part), to).min(axis=1).sum()) for part in parts
    )


_SAMPLE = 10_000


def _ours(
    options: Mapping[str, Any], *, timed: bool = False, greedy: bool = False, **fields: Any
) -> Contender:
    # Loops that only many rows need are loaded by many rows.
    warm_up = (10_000, 50)
    choose = of_sample(ours(options, timed, greedy))
    return Contender("uniproto", choose, balances=True, warm_up=warm_up, **fields)


def _balanced(iterations: int) -> Contender:
    choose = snapped(balanced_kmeans(iterations))
    return Contender("k-means-constrained", choose, (_SAMPLE, None), True, _SAMPLE)


OURS = {
    "uniproto": _ours({}, sizes=(None,)),
    "uniproto, all of the time": _ours({}, timed=True, sizes=(None,)),
    "uniproto, greedy": _ours({}, greedy=True, sizes=(_SAMPLE,), first_size=_SAMPLE),
}
PEERS = {
    "k-means-constrained": _balanced(300),
    "k-means-constrained, 10 iterations": _balanced(10),
    "FasterPAM": Contender("kmedoids", of_sample(fasterpam), (_SAMPLE,), first_size=_SAMPLE),
    "FasterCLARA": Contender("kmedoids", fasterclara, (None,)),
    "OneBatchPAM": Contender("onebatch", onebatchpam, (None,), first_size=2_500),
    "BanditPAM": Contender("banditpam", of_sample(banditpam), (1_000, None)),
    "FAISS k-means": Contender("faiss-cpu", faiss_kmeans, (None,), first_size=_SAMPLE),
    "MiniBatchKMeans": Contender("scikit-learn", snapped(minibatch_kmeans), (None,)),
    "apricot": Contender(
        "apricot-select", of_sample(apricot_greedy), (_SAMPLE,), first_size=_SAMPLE
    ),
    "random": Contender("numpy", random_rows, (None,)),
}
CONTENDERS = OURS | PEERS

"""Which metric, and how wide? UniPROT under a Gaussian similarity, over nine data sets.

`metric="rbf"` costs 1 − exp(−d²/2σ²). A wide σ is like `sqeuclidean`; a narrow one says that
whatever is far is equally far. Every data set is used in two ways: `pool`, a balanced source for a
long-tailed target of other rows, and `summary`, a long-tailed set that is source and target at
once; and with two kinds of rows: as given, where the plain metric is `euclidean`, and scaled to
length 1, where it is `cosine`. Measured are the exact cost of equally weighted prototypes in the
plain metric, how many prototypes the small classes get, and 1-NN accuracy in the plain metric:
overall, balanced, and of the small classes. Distances are computed once for a draw and serve all
bandwidths; only MMD-critic, which takes features, computes its own.

Settings are chosen on six draws (`tuning`) and judged on six others (`held out`): every method with
its own best metric and bandwidth, and all with the same one. The criterion for `bandwidth="auto"`:
the share of the median distance with the highest balanced accuracy of UniPROT on the tuning draws,
as a mean over data sets, both ways and both kinds of rows. It was fixed after an earlier study of
seeds 0 and 1, which are among the tuning draws, and before all other draws were made.

    UNIPROTO_DATA=/path/to/data uniproto experiment bandwidth
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.bandwidth_report import bandwidth_cells, bandwidth_reports
from support.charts import bandwidth_chart
from support.datasets import load_dataset
from support.draws import balanced_source_and_target
from support.joined import publish_joined, run_units
from support.published import first_of_each, read_json_lines
from support.runs import Setup, command_line, rounded
from uniproto import RBF, Compute, cost
from uniproto.comparing.accuracy import accuracy
from uniproto.geometry.blocks import EVERY
from uniproto.geometry.costs import make_costs
from uniproto.methods import METHODS
from uniproto.problem.problem import Problem
from uniproto.select import run_method

TITLE = "which metric, and which bandwidth: UniPROT, k-medoids and others on nine data sets"
SHARES = (1.0, 0.5, 0.35, 0.25, 0.2, 0.15, 0.1)  # of the median distance
TUNING, HELD_OUT = tuple(range(6)), tuple(range(200, 206))  # seeds of the draws
ROWS, K, SMALL = 800, 50, 1 / 3  # the smallest third of the classes are the small ones


@dataclass(frozen=True)
class Part:
    """A data set used in one way, and how its target is skewed."""

    data: str
    way: str = "pool"
    imbalance: float = 20.0
    rows: int = ROWS
    k: int = K
    tuning: tuple[int, ...] = TUNING
    held_out: tuple[int, ...] = HELD_OUT


def _both_ways(*parts: Part) -> dict[str, Part]:
    return {
        f"{part.data}-{way}": replace(part, way=way)
        for part in parts
        for way in ("pool", "summary")
    }


PARTS = _both_ways(
    Part("mnist"),
    Part("cifar10-features"),
    Part("cifar10"),
    Part("usps"),
    Part("digits", rows=400),
    Part("letter"),
    Part("adult", imbalance=10.0),
    Part("credit", imbalance=10.0),
    Part("english"),  # texts, by their source
)
QUICK_PARTS = _both_ways(Part("digits", rows=150, k=12, tuning=(0,), held_out=(100,)))


def run(setup: Setup) -> None:
    """Every data set in both ways; then the choice, and how it is judged."""
    parts = QUICK_PARTS if setup.quick else PARTS
    done = setup.parts(list(parts))
    rows = [rounded(row, 4) for name in done for row in _run_part(setup, name, parts[name])]
    if setup.waits_for_others(done):
        return
    publish_joined(
        setup,
        "bandwidth",
        rows,
        lambda rows: "\n\n".join(bandwidth_reports(rows).values()),
        lambda rows: bandwidth_chart(bandwidth_cells(rows)),
        ["data", "way"],
    )


def _run_part(setup: Setup, name: str, part: Part) -> Iterator[dict[str, Any]]:
    def of_seed(loaded: tuple[Any, Any], seed: int) -> Iterator[dict[str, Any]]:
        used = "tuning" if seed in part.tuning else "held out"
        return ({"draws": used} | row for row in measure(*loaded, part, seed))

    # In turns, so that a run that is stopped early has as many draws of either.
    pairs = zip(part.tuning, part.held_out, strict=True)
    rows = run_units(
        setup,
        f"bandwidth-{name}",
        {"shares": SHARES} | asdict(part),
        [{"seed": seed} for pair in pairs for seed in pair],
        lambda: read(part.data, setup.data),
        of_seed,
    )
    return ({"data": part.data, "way": part.way} | row for row in rows)


def read(name: str, data: Path | None) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Features and classes; texts by TF-IDF, reduced to 100 dimensions, their source the class."""
    if name == "english":
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        assert data is not None
        rows = first_of_each(read_json_lines(data / "text" / "english_mix.jsonl.zst"), 400)
        rows = [row for row in rows if row["text"].strip()]
        words = TfidfVectorizer(max_features=20_000, sublinear_tf=True, stop_words="english")
        counts = words.fit_transform(row["text"][:4000] for row in rows)
        reduced = TruncatedSVD(100, random_state=0).fit_transform(counts)
        return reduced.astype(np.float32), np.array([row["source"] for row in rows])
    found = load_dataset(name, data)
    return found.train.astype(np.float32), found.train_labels


@dataclass(frozen=True)
class Draw:
    """Source and target rows of one kind, their classes, and the small classes of the target."""

    source: NDArray[np.float32]
    target: NDArray[np.float32]
    labels: NDArray[Any]
    target_labels: NDArray[Any]
    small: list[Any]
    k: int
    seed: int


def measure(
    features: NDArray[np.float32], labels: NDArray[Any], part: Part, seed: int
) -> Iterator[dict[str, Any]]:
    """Every method under every metric and bandwidth, on one draw."""
    random = np.random.default_rng(seed)
    classes = random.permutation(np.unique(labels)).tolist()
    small = classes[-max(1, int(SMALL * len(classes))) :]
    source, target = balanced_source_and_target(
        labels,
        part.rows // len(classes),
        imbalance=part.imbalance,
        order=classes,
        size=None,
        seed=seed,
    )
    target = random.permutation(target)[: part.rows]
    if part.way == "summary":
        source = target
    rows, aims, true = features[source], features[target], labels[target]
    present = [name for name in small if (true == name).any()]
    draw = Draw(rows, aims, labels[source], true, present, part.k, seed)
    yield from _measure_kind(draw, "as given", "euclidean")
    if rows.any(axis=1).all() and aims.any(axis=1).all():  # a row of zeros has no direction
        unit = replace(draw, source=_unit(rows), target=_unit(aims))
        yield from _measure_kind(unit, "unit", "cosine")


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _measure_kind(draw: Draw, kind: str, plain: str) -> Iterator[dict[str, Any]]:
    """Every method with rows of one kind: in the plain metric, then with every bandwidth."""
    near = make_costs(draw.source, draw.target, plain).block(EVERY)
    distances = make_costs(draw.source, draw.target, "euclidean").block(EVERY)
    median = make_costs(draw.source, draw.target, "rbf", "1 median").bandwidth
    asked: Any = {"seed": draw.seed, "compute": Compute(device="cpu")}

    def judged(method: str, share: float | None, problem: Problem) -> dict[str, Any]:
        """One selection, by 1-NN and by cost in the plain metric, whatever it was chosen in."""
        picks = METHODS["greedy" if method == "uniproto" else method]()  # as in the paper
        chosen = run_method(problem.with_k(draw.k), picks, progress=False).indices
        predicted = draw.labels[chosen][near[chosen].argmin(axis=0)]
        found = accuracy(predicted, draw.target_labels, draw.small)
        return {
            "rows": kind,
            "method": method,
            "metric": plain if share is None else "rbf",
            "share": share,
            "cost": cost(near, chosen, metric="precomputed"),
            "minority_accuracy": found.minority,
            "balanced_accuracy": found.balanced,
            "accuracy": found.overall,
            "minority_prototypes": float(np.isin(draw.labels[chosen], draw.small).mean()),
            "minority_share": float(np.isin(draw.target_labels, draw.small).mean()),
        }

    for name in ("uniproto", "kmedoids"):
        yield judged(name, None, Problem(near, metric="precomputed", **asked))
    for name in ("kmeans", "random"):
        problem = Problem(draw.source, draw.target, metric="euclidean", **asked)
        yield judged(name, None, problem)
    for share in SHARES:
        width = share * median
        matrix = -np.expm1(-((distances / width) ** 2) / 2)
        for name in ("uniproto", "kmedoids"):
            yield judged(name, share, Problem(matrix, metric="precomputed", **asked))
        problem = Problem(draw.source, draw.target, metric=RBF(width), **asked)
        yield judged("mmd_critic", share, problem)


if __name__ == "__main__":
    command_line(run, TITLE)

"""Which metric, and how wide? UniPROT under a Gaussian similarity, over nine data sets.

`metric="rbf"` costs 1 − exp(−d²/2σ²). A wide σ is like `sqeuclidean`; a narrow one says that
whatever is far is equally far. Every data set is used in two ways: `pool`, a balanced source for a
long-tailed target of other rows, and `summary`, a long-tailed set that is source and target at
once. Measured are the exact cost of equally weighted prototypes in the Euclidean metric, how many
prototypes the small classes get, and 1-NN accuracy: overall, balanced, and of the small classes.

Settings are chosen on some draws (`tuning`) and judged on others (`held out`): every method with
its own best metric and bandwidth, and all with the same one.

    UNIPROTO_DATA=/path/to/data uniproto experiment bandwidth
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from support.charts import bandwidth_chart
from support.runs import Runs, Setup, command_line
from support.statistics import by, difference
from uniproto import cost
from uniproto.comparing.accuracy import accuracy
from uniproto.comparing.results import aligned
from uniproto.data import balanced_source_and_target, load_dataset
from uniproto.geometry.blocks import EVERY
from uniproto.geometry.costs import make_costs
from uniproto.methods import METHODS
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.select import run_method

TITLE = "which metric, and which bandwidth: UniPROT, k-medoids and others on nine data sets"
SHARES = (1.0, 0.5, 0.35, 0.25, 0.15, 0.1)  # of the median distance
PLAIN = ("cosine", "euclidean")
TUNING, HELD_OUT = (0, 1), (100, 101)  # seeds of the draws
MEASURES = {
    "minority_accuracy": "minority",
    "balanced_accuracy": "balanced",
    "accuracy": "overall",
}
ROWS, K, SMALL = 800, 50, 1 / 3  # the smallest third of the classes are the small ones


@dataclass(frozen=True)
class Part:
    """A data set, and how its target is skewed."""

    data: str
    imbalance: float = 20.0
    rows: int = ROWS
    k: int = K
    tuning: tuple[int, ...] = TUNING
    held_out: tuple[int, ...] = HELD_OUT


PARTS = {
    part.data: part
    for part in (
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
}
QUICK_PARTS = {
    "digits": Part("digits", rows=150, k=12, tuning=(0,), held_out=(100,)),
}


def run(setup: Setup) -> None:
    """Every data set in both ways; then the choice, and how it is judged."""
    parts = QUICK_PARTS if setup.quick else PARTS
    rows: list[dict[str, Any]] = []
    done = setup.parts(list(parts))
    for name in done:
        rows += _run_part(setup, name, parts[name])
    if setup.waits_for_others(done):
        return
    report = "\n\n".join([*shares_tables(rows), best_table(rows), same_table(rows)])
    (setup.out / "bandwidth.jsonl").unlink(missing_ok=True)  # joined anew from the parts' rows
    runs = Runs(setup.out, "bandwidth", {"quick": setup.quick})
    for (name,), found in by(rows, "part").items():
        runs.add({"part": name}, found)
    runs.publish({"bandwidth": bandwidth_chart(_relative(rows))}, report)
    print(report)
    print(f"\nwritten to {setup.out}")


def _run_part(setup: Setup, name: str, part: Part) -> Iterator[dict[str, Any]]:
    runs = Runs(
        setup.out, f"bandwidth-{name}", {"quick": setup.quick, "shares": SHARES} | asdict(part)
    )
    units = [
        (way, seed)
        for way in ("pool", "summary")
        for seed in (*part.tuning, *part.held_out)
        if not runs.done(way=way, seed=seed)
    ]
    with Progress(setup.progress).stage(f"bandwidth {name}", len(units)) as advance:
        if units:
            features, labels = read(part.data, setup.data)
        for way, seed in units:
            used = "tuning" if seed in part.tuning else "held out"
            found = [{"draws": used} | row for row in measure(features, labels, part, way, seed)]
            runs.add({"way": way, "seed": seed}, found)
            advance(1)
    return ({"part": name} | row for row in runs.rows)


def read(name: str, data: Path | None) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Features and classes; texts by TF-IDF, reduced to 100 dimensions, their source the class."""
    if name == "english":
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        texts, labels = _texts(data, "text/english_mix.jsonl.zst", most=400)
        words = TfidfVectorizer(max_features=20_000, sublinear_tf=True, stop_words="english")
        counts = words.fit_transform(text[:4000] for text in texts)
        return TruncatedSVD(100, random_state=0).fit_transform(counts).astype(np.float32), labels
    found = load_dataset(name, data)
    return found.train.astype(np.float32), found.train_labels


def _texts(data: Path | None, name: str, most: int) -> tuple[list[str], NDArray[Any]]:
    """At most so many texts of every source, those that come first."""
    assert data is not None
    texts, labels, seen = [], [], {}
    with pa.input_stream(str(data / name), compression="zstd") as stream:
        for line in stream.read().decode("utf-8").split("\n"):
            if not line:
                continue
            record = json.loads(line)
            source = record["source"]
            seen[source] = seen.get(source, 0) + 1
            if seen[source] <= most and record["text"].strip():
                texts.append(record["text"])
                labels.append(source)
    return texts, np.array(labels)


def measure(
    features: NDArray[np.float32], labels: NDArray[Any], part: Part, way: str, seed: int
) -> list[dict[str, Any]]:
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
    if way == "summary":
        source = target
    rows, aims = features[source], features[target]
    own, true = labels[source], labels[target]
    present = [name for name in small if (true == name).any()]
    distances = make_costs(rows, aims, "euclidean").block(EVERY)
    median = make_costs(rows, aims, "rbf", "1 median").bandwidth
    angles = make_costs(rows, aims, "cosine").block(EVERY) if rows.any(axis=1).all() else None

    def judged(method: str, metric: str, share: float | None, problem: Problem) -> dict[str, Any]:
        """One selection; 1-NN by angles after a selection by angles, else by distances."""
        options = {"search": "greedy"} if method == "uniproto" else {}  # as in the paper
        chosen = run_method(problem, METHODS[method](**options), progress=False).indices
        near = angles if metric == "cosine" else distances
        found = accuracy(own[chosen][near[chosen].argmin(axis=0)], true, present)
        return {
            "method": method,
            "metric": metric,
            "share": share,
            "cost": cost(distances, chosen, metric="precomputed"),
            "minority_accuracy": found.minority,
            "balanced_accuracy": found.balanced,
            "accuracy": found.overall,
            "minority_prototypes": float(np.isin(own[chosen], present).mean()),
            "minority_share": float(np.isin(true, present).mean()),
        }

    def by_matrix(matrix: NDArray[np.float32]) -> Problem:
        return Problem(matrix, k=part.k, metric="precomputed", seed=seed, device="cpu")

    def by_features(metric: str, bandwidth: float | None = None) -> Problem:
        options = {"metric": metric, "bandwidth": bandwidth, "seed": seed, "device": "cpu"}
        return Problem(rows, aims, k=part.k, **options)

    found = []
    for metric, matrix in (("euclidean", distances), ("cosine", angles)):
        if matrix is not None:
            for name in ("uniproto", "kmedoids"):
                found.append(judged(name, metric, None, by_matrix(matrix)))
    for name in ("kmeans", "random"):
        found.append(judged(name, "euclidean", None, by_features("euclidean")))
    for share in SHARES:
        matrix = -np.expm1(-((distances / (share * median)) ** 2) / 2)
        for name in ("uniproto", "kmedoids"):
            found.append(judged(name, "rbf", share, by_matrix(matrix)))
        of_kernel = by_features("rbf", share * median)
        found.append(judged("mmd_critic", "rbf", share, of_kernel))
    return found


def _setting(row: dict[str, Any]) -> str:
    return row["metric"] if row["share"] is None else f"rbf {row['share']:g}"


def shares_tables(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Means over data sets and tuning draws, for every method and setting."""
    for (way,), group in by([r for r in rows if r["draws"] == "tuning"], "way").items():
        lines: dict[str, list[str]] = {
            name: [] for name in (f"{way}, tuning draws", "cost", "minority", "balanced", "overall")
        }
        lines["prototypes of small classes / their share"] = []
        cheapest = {
            key: np.mean([r["cost"] for r in runs if _setting(r) == "euclidean"])
            for key, runs in by([r for r in group if r["method"] == "uniproto"], "part").items()
        }
        for (method,), runs in by(group, "method").items():
            for setting in dict.fromkeys(map(_setting, runs)):
                some = [r for r in runs if _setting(r) == setting]
                lines[f"{way}, tuning draws"].append(f"{method}, {setting}")
                ratio = np.mean([r["cost"] / cheapest[r["part"],] for r in some])
                lines["cost"].append(f"{ratio:.3f}")
                for measure_name, word in zip(
                    MEASURES, ("minority", "balanced", "overall"), strict=True
                ):
                    value = 100 * np.mean([r[measure_name] for r in some])
                    lines[word].append(f"{value:.1f}")
                shares = np.mean([r["minority_prototypes"] / r["minority_share"] for r in some])
                lines["prototypes of small classes / their share"].append(f"{shares:.2f}")
        yield aligned(lines)


def best_settings(
    rows: Sequence[dict[str, Any]], measure_name: str = "balanced_accuracy"
) -> dict[tuple[Any, ...], str]:
    """For every way, data set and method the setting that is best on the tuning draws."""
    best = {}
    tuning = [row for row in rows if row["draws"] == "tuning"]
    for key, group in by(tuning, "way", "part", "method").items():
        settings = dict.fromkeys(map(_setting, group))
        best[key] = max(
            settings,
            key=lambda s: np.mean([r[measure_name] for r in group if _setting(r) == s]),
        )
    return best


def best_table(rows: Sequence[dict[str, Any]]) -> str:
    """Held-out draws, every method with its own best setting of the tuning draws."""
    return _held_out(rows, "its own best", best_settings(rows))


def same_table(rows: Sequence[dict[str, Any]], setting: str = "rbf 0.25") -> str:
    """Held-out draws, every method that has a kernel with the same one."""
    same = {key: setting if key[2] in ("uniproto", "kmedoids", "mmd_critic") else "euclidean"
            for key in best_settings(rows)}  # fmt: skip
    return _held_out(rows, setting, same)


def _held_out(
    rows: Sequence[dict[str, Any]], title: str, settings: dict[tuple[Any, ...], str]
) -> str:
    """Accuracies, and how far UniPROT is above each method, over data sets and draws."""
    chosen = [
        row
        for row in rows
        if row["draws"] == "held out"
        and _setting(row) == settings[row["way"], row["part"], row["method"]]
    ]
    first, last = f"held out, {title}", "balanced: UniPROT − this"
    lines: dict[str, list[str]] = {name: [] for name in (first, *MEASURES.values(), last)}
    for (way, method), group in by(chosen, "way", "method").items():
        lines[first].append(f"{way}: {method}")
        for measure_name, word in MEASURES.items():
            lines[word].append(f"{100 * np.mean([r[measure_name] for r in group]):.1f}")
        ours = [r for r in chosen if (r["way"], r["method"]) == (way, "uniproto")]
        # Draws of one data set are alike: the error is that over data sets.
        apart = difference(*(_by_data(some, "balanced_accuracy") for some in (ours, group)))
        error = 0.0 if apart.error is None else apart.error
        lines[last].append(f"{100 * apart.mean:+.1f} ± {100 * error:.1f}")
    return aligned(lines)


def _by_data(rows: Sequence[dict[str, Any]], column: str) -> list[float]:
    """The mean of every data set, in the order of their names."""
    groups = by(rows, "part")
    return [float(np.mean([row[column] for row in groups[key]])) for key in sorted(groups)]


def _relative(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every accuracy under the kernel less that of the same method by Euclidean distances."""
    cells = []
    for (way, part, method), group in by(rows, "way", "part", "method").items():
        plain = {r["seed"]: r for r in group if _setting(r) == "euclidean"}
        if not plain:
            continue
        for row in [r for r in group if r["share"] is not None]:
            for measure_name in MEASURES:
                apart = row[measure_name] - plain[row["seed"]][measure_name]
                cells.append(
                    {"way": way, "data": part, "method": method, "share": row["share"]}
                    | {"measure": measure_name.replace("_", " "), "difference": apart}
                )
    return cells


if __name__ == "__main__":
    command_line(run, TITLE)

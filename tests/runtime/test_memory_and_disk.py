"""Within the memory allowed, and from files that stay on disk."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import uniproto
from uniproto import Entropic, Greedy, InfeasibleError, InvalidInputError, UniProto
from uniproto.geometry import cpu_lists, features
from uniproto.geometry.costs import FEATURE_METRICS
from uniproto.geometry.features import (
    RowsOnDisk,
    prepare,
)
from uniproto.methods import METHODS
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import free_bytes, memory_budget, readable, require_memory

M, N, K, WIDTH = 90, 130, 11, 5
GREEDY = Greedy()
TYPES = ("f4", "f2", "u1", "f8", "i1", "i2", "i8", "?", ">f4", ">f8")


_slow = partial(pytest.param, marks=pytest.mark.slow)  # with make test-all


def rows_of(kind: str, rows: int, seed: int, width: int = WIDTH) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=(rows, width)) + 0.4
    if kind == "?":
        values = values > 0.3
        values[:, 0] = True  # no all-zero row
        return values
    if np.dtype(kind).kind == "f":
        return values.astype(kind)
    low, high = (0, 255) if kind == "u1" else (-128, 127)
    return (values * 40 + 20).clip(low, high).astype(kind)


@pytest.fixture
def to_disk(tmp_path: Path) -> Callable[..., Any]:
    """Save an array and open it again as a memory map."""

    def save(values: np.ndarray, mode: Any = "r") -> Any:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        np.save(path, values)
        return np.load(path, mmap_mode=mode)

    return save


# --- how much memory is allowed -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "amount"),
    [
        (12345, 12345),
        (2.9, 2),
        (np.int64(77), 77),
        ("100", 100),
        ("1e6", 10**6),
        ("1E+3 kB", 1000 * 2**10),
        ("4KiB", 4 * 2**10),
        ("64 MB", 64 * 2**20),
        ("1.5gb", 3 * 2**29),
        ("0.5T", 2**39),
    ],
)
def test_amounts_of_memory(memory: Any, amount: int) -> None:
    assert memory_budget(memory) == amount
    assert isinstance(memory_budget(memory), int)


NO_AMOUNTS = (
    *("", "lots", "GB", "-1GB", "4 PB", "4 GB!", "1,5GB", "4GBB", "1e-3GB", "nan", "inf"),
    *(-1, -0.5, float("nan"), float("inf"), True, False, np.True_, [1], b"4GB", {}),
)


@pytest.mark.parametrize("memory", NO_AMOUNTS, ids=repr)
def test_what_is_no_amount_of_memory(memory: Any) -> None:
    with refused("memory", InvalidInputError):
        memory_budget(memory)
    with refused("memory", InvalidInputError):
        uniproto.select(rows_of("f8", M, 1), K, compute=uniproto.Compute(memory=memory))


@pytest.mark.parametrize("memory", [0, 0.0, 0.3, "0", "0GB", "0.4"])
def test_no_memory_at_all(memory: Any) -> None:
    with refused("memory", InvalidInputError):
        memory_budget(memory)


def test_a_quarter_of_what_is_free_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**20 < free_bytes() < 2**50
    monkeypatch.setattr("uniproto.runtime.memory.free_bytes", lambda: 4000)
    assert memory_budget(None) == 1000
    assert Problem(rows_of("f8", M, 1)).with_k(K).memory == 1000


def test_a_refusal_says_what_why_and_what_to_do() -> None:
    require_memory(100, 100, "it is kept", "Buy more.")
    with pytest.raises(InfeasibleError) as caught:
        require_memory(3 * 2**20, 2**20, "it is kept", "Buy more.")
    assert str(caught.value) == (
        "Not enough memory: it is kept and needs 3 MiB, more than the 1 MiB allowed. Buy more."
    )
    assert [readable(n) for n in (1, 1023, 1024, 10**7, 2**40)] == [
        "1 B", "1023 B", "1 KiB", "9.537 MiB", "1024 GiB",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "method",
    [GREEDY, Greedy(sample=0.5)],
    ids=["extend", "stochastic"],
)
def test_following_the_advice_of_a_refusal_works(method: UniProto, dtype: str) -> None:
    source, target = rows_of(dtype, M, 1), rows_of(dtype, N, 2)
    question: dict[str, Any] = {"target": target, "metric": "euclidean", "method": method}
    with pytest.raises(InfeasibleError, match=r"Not enough memory: even lists of one") as caught:
        uniproto.select(source, K, compute=uniproto.Compute(memory=20), **question)
    assert re.search(r"select from a sample", str(caught.value))
    advised = int(re.search(r"Allow at least memory=(\d+)", str(caught.value))[1])
    assert advised > 20
    scarce = uniproto.select(source, K, compute=uniproto.Compute(memory=advised), **question)
    assert scarce.indices.tolist() == uniproto.select(source, K, **question).indices.tolist()
    with pytest.raises(InfeasibleError, match=f"Allow at least memory={advised}"):
        uniproto.select(source, K, compute=uniproto.Compute(memory=advised - 1), **question)


EXACT = rf"the exact plan is solved over {K} × {N} .*memory={K * N * 8}, or use"
ENTROPIC = rf"plan=Entropic\(…\) holds {M} × {N} .*Use plan='extend'"


@pytest.mark.parametrize(
    ("method", "entries", "said"),
    [
        (Greedy(plan="resolve"), K * N, EXACT),
        (Greedy(gains="exact"), K * N, EXACT),
        (Greedy(plan=Entropic(reg=0.1)), M * N, ENTROPIC),
    ],
    ids=["resolve", "exact", "entropic"],
)
def test_a_plan_asks_for_its_matrix_first(method: Greedy, entries: int, said: str) -> None:
    source, target = rows_of("f4", M, 1), rows_of("f4", N, 2)
    enough, too_little = (uniproto.Compute(memory=8 * entries - less) for less in (0, 1))
    with pytest.raises(InfeasibleError, match=said):
        uniproto.select(source, K, target, method=method, compute=too_little)
    scarce = uniproto.select(source, K, target, method=method, compute=enough)
    plain = uniproto.select(source, K, target, method=method)
    assert scarce.indices.tolist() == plain.indices.tolist()
    if said == ENTROPIC:
        uniproto.select(source, K, target, compute=too_little)  # as advised


@pytest.mark.parametrize("memory", ["20KB", "200KB", "1GB", None])
def test_memory_never_changes_what_a_search_finds(memory: Any) -> None:
    source, target = rows_of("f4", M, 1), rows_of("f4", N, 2)
    for method in (GREEDY, Greedy(plan="resolve"), Greedy(gains="exact"), "kmedoids"):
        plain = uniproto.select(source, K, target, method=method)
        other = uniproto.select(
            source, K, target, method=method, compute=uniproto.Compute(memory=memory)
        )
        assert other.indices.tolist() == plain.indices.tolist()
        assert other.cost == pytest.approx(plain.cost, rel=1e-12)


# --- rows on disk ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["i1", "i2"])
def test_the_most_negative_whole_number_has_a_length(
    to_disk: Callable[..., Any], kind: str
) -> None:
    """Its negative does not exist: −(−128) is −128 in eight bits."""
    lowest = np.iinfo(kind).min
    values = np.array([[lowest, lowest], [lowest, -1], [lowest, 0], [3, 4]], kind)
    unit = prepare(to_disk(values), np.dtype(np.float64), unit_length=True)[:]
    expected = values / np.linalg.norm(values.astype(float), axis=1, keepdims=True)
    np.testing.assert_allclose(unit, expected)


@pytest.mark.parametrize(("kind", "scale"), [("f8", 1e200), ("f8", 1e-200), ("f4", 1e-30)])
def test_lengths_on_disk_neither_overflow_nor_vanish(
    to_disk: Callable[..., Any], kind: str, scale: float
) -> None:
    values = rows_of("f8", M, 1)
    unit = prepare(to_disk((values * scale).astype(kind)), np.dtype(kind), unit_length=True)[:]
    expected = values / np.linalg.norm(values, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, expected, rtol=1e-5)


# --- selections from disk -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_picks_from_disk(to_disk: Callable[..., Any], metric: str, kind: str) -> None:
    source, target = rows_of(kind, M, 1), rows_of(kind, N, 2)
    source_on_disk, target_on_disk = to_disk(source), to_disk(target)
    expected = uniproto.select(source, K, target, method=GREEDY, metric=metric)
    for one, other in (
        (source_on_disk, target_on_disk),
        (source_on_disk, target),
        (source, target_on_disk),
    ):
        selection = uniproto.select(one, K, other, method=GREEDY, metric=metric)
        assert selection.indices.tolist() == expected.indices.tolist()
        assert selection.cost == pytest.approx(expected.cost, rel=1e-5)
        assert selection.details.shape == (M, N)


QUESTIONS: dict[str, dict[str, Any]] = {
    "nothing more": {},
    "groups": {"groups": uniproto.Groups(np.arange(M) % 3, target=np.arange(N) % 3)},
    "initial": {"include": [7, 2], "exclude": [0, 88]},
    "weights": {"target_weights": np.random.default_rng(3).random(N)},
    "distinct": {"min_distance": "auto"},
    "distinct groups": {
        "min_distance": 0.01,
        "groups": uniproto.Groups(np.arange(M) % 2, target=np.arange(N) % 2),
    },
    "certify": {"certify": True},
    "short lists": {"compute": uniproto.Compute(memory=2 * M * 12 * 3)},
    "resolve": {"method": Greedy(plan="resolve"), "include": [7, 2]},
    "entropic": {"method": Greedy(plan=Entropic(reg=0.1, iterations=100))},
    "exact gains": {"method": Greedy(gains="exact")},
    "stochastic": {"method": Greedy(sample=0.3)},
    "faiss": {"compute": uniproto.Compute(neighbours="faiss")},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f4", _slow("f2"), "u1"])
@pytest.mark.parametrize("metric", ["cosine", "euclidean", _slow("dot")])
@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_about_files(
    to_disk: Callable[..., Any], question: str, metric: str, kind: str
) -> None:
    if question == "faiss":
        pytest.importorskip("faiss")
    source, target = rows_of(kind, M, 1), rows_of(kind, N, 2)
    options = QUESTIONS[question]
    expected = uniproto.select(source, K, target, metric=metric, **options)
    found = uniproto.select(to_disk(source), K, to_disk(target), metric=metric, **options)
    assert found.indices.tolist() == expected.indices.tolist()
    np.testing.assert_allclose(
        found.details.gains, expected.details.gains, atol=1e-4 * expected.details.beta
    )
    assert found.cost == pytest.approx(expected.cost, rel=1e-5)
    assert found.group_costs == pytest.approx(expected.group_costs, rel=1e-5)
    if question == "certify":
        bounds = [one.certificate.lower_bound for one in (found, expected)]
        assert bounds[0] == pytest.approx(bounds[1], rel=1e-3, abs=1e-3 * expected.cost)
        assert bounds[0] <= found.cost


@pytest.mark.parametrize("metric", ["cosine", "l1", "euclidean"])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_from_disk(to_disk: Callable[..., Any], name: str, metric: str) -> None:
    source = rows_of("f4", M, 1)
    source = np.abs(source) if name == "dsir" else source  # which takes counts only
    expected = uniproto.select(source, K, method=name, metric=metric)
    found = uniproto.select(to_disk(source), K, method=name, metric=metric)
    assert found.indices.tolist() == expected.indices.tolist()
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-4)
    assert found.cost == pytest.approx(expected.cost, rel=1e-5, abs=1e-6)


def test_kmeans_reads_a_file_whole_or_says_that_it_cannot(to_disk: Callable[..., Any]) -> None:
    on_disk, needed = to_disk(rows_of("f4", M, 1)), M * WIDTH * 4
    uniproto.select(on_disk, K, method="kmeans", compute=uniproto.Compute(memory=needed))
    with pytest.raises(
        InfeasibleError, match=r"'kmeans' reads all target rows .*Use method='kmedoids'"
    ):
        uniproto.select(on_disk, K, method="kmeans", compute=uniproto.Compute(memory=needed - 1))
    uniproto.select(
        on_disk, K, method="kmedoids", compute=uniproto.Compute(memory=needed - 1)
    )  # as advised


def test_two_copies_of_a_file_are_one_set(to_disk: Callable[..., Any]) -> None:
    source = rows_of("f4", M, 1)
    expected = uniproto.select(source, K, source.copy(), method="fasterpam")
    found = uniproto.select(to_disk(source), K, to_disk(source), method="fasterpam")
    assert found.indices.tolist() == expected.indices.tolist()


@pytest.mark.parametrize("kind", ["f4", "f8", _slow("f2"), "u1", _slow("i8"), _slow(">f8")])
@pytest.mark.parametrize("metric", ["precomputed", "similarity"])
def test_matrices_on_disk(to_disk: Callable[..., Any], metric: str, kind: str) -> None:
    matrix = np.random.default_rng(5).random((M, N)) * (250 if kind[-2] in "ui" else 1)
    matrix = matrix.astype(kind)
    on_disk = to_disk(matrix)
    for options in (
        {},
        {"certify": True},
        {"method": "kmedoids"},
        {"groups": uniproto.Groups(np.arange(M) % 2, target=np.arange(N) % 2)},
    ):
        expected = uniproto.select(matrix, K, metric=metric, **options)
        found = uniproto.select(on_disk, K, metric=metric, **options)
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.cost == pytest.approx(expected.cost, rel=1e-6)
        assert found.details.beta == pytest.approx(expected.details.beta)


@pytest.mark.parametrize("layout", ["fortran", "every other row", "some columns"])
def test_files_in_other_layouts(to_disk: Callable[..., Any], layout: str) -> None:
    values = rows_of("f4", 2 * M, 1)
    on_disk = to_disk(np.asfortranarray(values) if layout == "fortran" else values)
    part = {
        "fortran": np.s_[:],
        "every other row": np.s_[::2],
        "some columns": np.s_[:, 1:4],
    }[layout]
    assert isinstance(on_disk[part], np.memmap)
    for metric in FEATURE_METRICS:
        expected = uniproto.select(values[part], K, method=GREEDY, metric=metric)
        found = uniproto.select(on_disk[part], K, method=GREEDY, metric=metric)
        assert found.indices.tolist() == expected.indices.tolist()


def test_files_are_never_written_to(to_disk: Callable[..., Any]) -> None:
    source, target = rows_of("f4", M, 1), rows_of("f4", N, 2)
    writable, other = to_disk(source, "r+"), to_disk(target, "r+")
    for metric in FEATURE_METRICS:
        uniproto.select(writable, K, other, metric=metric, certify=True, min_distance="auto")
    for on_disk, values in ((writable, source), (other, target)):
        np.testing.assert_array_equal(np.load(on_disk.filename), values)


def test_mistakes_in_files_are_named(to_disk: Callable[..., Any]) -> None:
    values = rows_of("f4", 5000, 1)
    values[4321, 2] = np.nan
    with pytest.raises(InvalidInputError, match=r"'source' .* row 4321"):
        uniproto.select(to_disk(values), K)
    values[4321] = 0
    with pytest.raises(InvalidInputError, match=r"'target' .* index 4321"):
        uniproto.select(rows_of("f4", M, 1), K, to_disk(values), metric="cosine")
    with refused("source", InvalidInputError):
        uniproto.select(to_disk(np.array([["one", "two"]])), 1)
    with refused("source", InvalidInputError):
        uniproto.select(to_disk(np.arange(9.0)), 1)
    with refused("target", InvalidInputError):
        uniproto.select(to_disk(rows_of("f4", M, 1)), K, to_disk(rows_of("f4", M, 1, 3)))


# --- how much is read at once ---------------------------------------------------------------------

MANY = 20_000


@pytest.fixture
def largest_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The largest number of rows that were in memory at once, in a list that is kept current."""
    largest = [0]
    original = RowsOnDisk.__getitem__

    def noting(rows_on_disk: RowsOnDisk, rows: Any) -> np.ndarray:
        taken = original(rows_on_disk, rows)
        largest[0] = max(largest[0], len(taken))
        return taken

    monkeypatch.setattr(RowsOnDisk, "__getitem__", noting)
    monkeypatch.setattr(cpu_lists, "_COLUMNS_PER_BLOCK", 2048)
    monkeypatch.setattr("uniproto.geometry.blocks._BLOCK_BYTES", 2**18)
    monkeypatch.setattr(
        "uniproto.geometry.feature_costs._CACHED_ENTRIES", 0
    )  # no target counts as small
    monkeypatch.setattr(features, "_ROWS_AT_ONCE", 1024)
    return largest


@pytest.mark.parametrize(
    "question", ["picks", "cost", "distinct", "initial", "groups", "kmedoids", "kcenter"]
)
def test_a_large_source_is_never_in_memory(
    to_disk: Callable[..., Any],
    question: str,
    largest_read: list[int],
) -> None:
    source, target = to_disk(rows_of("f4", MANY, 1)), rows_of("f4", 200, 2)
    options: dict[str, Any] = {
        "include": {
            "include": [19_000, 4],
            "compute": uniproto.Compute(memory="2MB"),
            "exclude": [1, 5],
        },
        "min_distance": {"min_distance": "auto", "compute": uniproto.Compute(memory="2MB")},
        "groups": {
            "groups": uniproto.Groups(np.arange(MANY) % 3 == 0, target=np.arange(200) % 2 == 0),
            "compute": uniproto.Compute(memory="2MB"),
        },
        "kmedoids": {"method": "kmedoids", "compute": uniproto.Compute(memory="2MB")},
        "kcenter": {"method": "kcenter"},
    }.get(question, {"compute": uniproto.Compute(memory="2MB")})
    selection = uniproto.select(source, 8, target, metric="euclidean", **options)
    if question == "cost":
        assert selection.cost > 0
    assert 0 < largest_read[0] < MANY / 2


@pytest.mark.parametrize(
    "question",
    [
        *("first pick", "picks", "groups", "cost", "certify", "resolve", "dot"),
        *("kmedoids", "kcenter", "mmd_critic", "protodash"),
    ],
)
def test_a_large_target_is_never_in_memory(
    to_disk: Callable[..., Any],
    question: str,
    largest_read: list[int],
) -> None:
    source, target = rows_of("f4", 100, 1), to_disk(rows_of("f4", MANY, 2))
    k, options = 8, {}
    match question:
        case "first pick" | "certify":
            k = 1
        case "resolve":
            k, options = 1, {"method": Greedy(plan="resolve")}
        case "dot":
            k, options = 1, {"metric": "dot"}
        case "kmedoids" | "kcenter" | "mmd_critic" | "protodash":
            options = {"method": question}
        case "groups":
            k = 2
            options = {"groups": uniproto.Groups(np.arange(100) % 2, target=np.arange(MANY) % 2)}
    selection = uniproto.select(
        source, k, target, compute=uniproto.Compute(memory="1MB"), **options
    )
    if question == "certify":
        selection.certify(seconds=1)
    if question == "cost":
        assert selection.cost > 0
    assert 0 < largest_read[0] < MANY / 2


_PEAK = """
import sys, threading
from pathlib import Path
import numpy as np, uniproto

def allocated():  # without the pages of mapped files, which the system takes back at will
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "RssAnon" in line) / 1024

target = np.load(sys.argv[1], mmap_mode="r")
source = np.array(target[::300])
few = np.array(target[:50_000, :8])
uniproto.select(source[:, :8], 10, few)  # loads compiled code, too
before = peak = allocated()
done = threading.Event()

def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, allocated())

watching = threading.Thread(target=watch)
watching.start()
selection = uniproto.select(source, 50, target, compute=uniproto.Compute(memory="64MB"))
done.set()
watching.join()
assert len(set(selection.indices.tolist())) == 50
print(peak - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux")
def test_a_file_of_300_megabytes_takes_far_less_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(100, 512)).astype(np.float32)
    path = tmp_path / "target.npy"
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (150_000, 512))
    for start in range(0, 150_000, 10_000):
        noise = rng.standard_normal((10_000, 512), dtype=np.float32)
        rows[start : start + 10_000] = centres[rng.integers(100, size=10_000)] + noise
    rows.flush()
    del rows
    assert path.stat().st_size > 300e6
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PEAK, str(path)], capture_output=True, text=True
    )
    path.unlink()
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) < 190  # MiB

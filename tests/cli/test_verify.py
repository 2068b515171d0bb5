"""`uniproto certify` and `uniproto verify`: a result is proven from its files, or refused."""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import uniproto
from uniproto.selection.selection import Selection
from uniproto.transport import prototypes

M, N, K = 40, 30, 6
RNG = np.random.default_rng(21)
X = RNG.normal(size=(M, 3)).astype(np.float32)
Y = RNG.normal(size=(N, 3)).astype(np.float32)
PARQUET = ["pool.parquet", "--column", "embedding"]
GROUPS = [*PARQUET, "--groups", "source"]


def as_table(features: np.ndarray) -> pa.Table:
    rows = np.arange(len(features))
    return pa.table(
        {
            "doc": [f"doc {row} é" for row in rows],
            "day": pa.array(rows, pa.int32()).cast(pa.date32()),
            "source": np.array(["web", "本"])[rows % 2],
            "year": 2000 + rows % 2,
            "weight": 1.0 + rows,
            "embedding": pa.array(features.tolist(), pa.list_(pa.float32())),
        }
    )


@pytest.fixture(autouse=True)
def files(inside: Path) -> None:
    np.save("pool.npy", X)
    np.save("target.npy", Y)
    np.save("costs.npy", np.abs(X @ Y.T))
    pq.write_table(as_table(X), "pool.parquet")
    pq.write_table(as_table(Y), "target.parquet")
    Path("parts").mkdir()
    pq.write_table(as_table(X[:15]), "parts/first.parquet")
    pq.write_table(as_table(X[15:]), "parts/second.parquet")


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def select(run: Run) -> Callable[..., Path]:
    def call(*arguments: object) -> Path:
        told = any(word in arguments for word in ("--method", "--seconds"))
        search = () if told else ("--method", "greedy")  # which leaves a gap to certify
        status, _, err = run("select", "-k", K, "-o", "out", "--quiet", *search, *arguments)
        assert (status, err) == (0, "")
        return Path("out")

    return call


Select = Callable[..., Path]


def assert_yes(run: Run, folder: Path = Path("out")) -> str:
    status, out, err = run("verify", folder)
    assert (status, err) == (0, ""), out
    assert out.endswith("verified: yes\n")
    assert all(line.startswith("  yes") for line in out.splitlines()[:-1])
    return out


def assert_no(run: Run, *claims: str) -> None:
    """A no at each of these claims (by a part of them), or an error where none is named."""
    status, out, err = run("verify", "out")
    if not claims:
        assert status == 2, out
        assert "verified" not in out
        assert err.startswith("uniproto: error: ")
        return
    assert (status, err) == (1, ""), out + err
    assert out.endswith("verified: no\n")
    doubted = [line for line in out.splitlines()[:-1] if line.startswith("  no ")]
    for claim in claims:
        assert any(claim in line for line in doubted), out


def read_manifest(folder: Path = Path("out")) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text("utf-8"))


def forge(change: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Change the manifest, and let its digests be those of the files as they are now."""
    manifest = read_manifest()
    if change is not None:
        change(manifest)
    manifest["files"] = {
        name: hashlib.sha256(Path("out", name).read_bytes()).hexdigest()
        for name in manifest["files"]
    }
    Path("out", "manifest.json").write_text(json.dumps(manifest), "utf-8")


def change_column(name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    path = Path("out", "selection.parquet")
    table = pq.read_table(path)
    values = change(table.column(name).to_numpy().copy())
    position = table.column_names.index(name)
    pq.write_table(table.set_column(position, name, pa.array(values)), path)


def change_plan(change: Callable[[sp.csr_array], sp.csr_array]) -> None:
    path = Path("out", "plan.npz")
    with np.load(path) as arrays:
        content = dict(arrays)
    plan = change(sp.csr_array(sp.load_npz(path)))
    content |= {"data": plan.data, "indices": plan.indices, "indptr": plan.indptr}
    np.savez(path, **content)


# Honest results


OPTIONS: dict[str, list[object]] = {
    "plain": ["pool.npy"],
    "target": ["pool.npy", "--target", "target.npy", "--metric", "euclidean"],
    "weights": [
        *(*PARQUET, "--target", "target.parquet"),
        *("--target-weights", "weight", "--metric", "l1"),
    ],
    "ids": [*PARQUET, "--id", "doc", "--metric", "dot"],
    "dates for ids": [*PARQUET, "--id", "day"],
    "groups": [*GROUPS, "--budgets", "web=4,本=2", "--metric", "sqeuclidean"],
    "numbered groups": [*PARQUET, "--groups", "year", "--target", "target.parquet"],
    "rows": ["pool.npy", "--include", "3,17", "--exclude", "0,5"],
    "all at once": [*GROUPS, "--id", "doc", "--target-weights", "weight", "--include", "7,2",
                    "--exclude", "0,5", "--min-distance", "--seed", 4],
    "min_distance": ["pool.npy", "--min-distance", "0.05"],
    "precomputed": ["costs.npy", "--metric", "precomputed"],
    "similarity": ["costs.npy", "--metric", "similarity"],
    "another method": ["pool.npy", "--method", "random", "--seed", 5],
    "learned weights": ["pool.npy", "--method", "protodash"],
    "seconds": ["pool.npy", "--seconds", "1"],
    "resolve": ["pool.npy", "--method", "greedy", "--plan", "resolve"],
    "a folder": ["parts", "--column", "embedding", "--id", "doc"],
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_honest_results(name: str, select: Select, run: Run) -> None:
    folder = select(*OPTIONS[name])
    before = assert_yes(run)
    assert "prices" not in before
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    status, out, err = run("certify", folder)
    assert (status, err) == (0, "")
    assert out.startswith("cost ")
    assert "can be below" in out
    after = assert_yes(run)
    assert "the prices prove it" in after
    # Everything but the manifest is as it was, and the manifest has only gained.
    for file, content in files.items():
        assert file == "manifest.json" or (folder / file).read_bytes() == content
    old, new = json.loads(files["manifest.json"]), read_manifest()
    assert new.keys() - old.keys() == {"certificate"}
    assert {**new, "files": None, "timings": None, "certificate": None} == {
        **old, "files": None, "timings": None, "certificate": None,
    }  # fmt: skip
    selection = Selection.load(folder)
    assert selection.certificate.lower_bound <= selection.cost
    assert str(selection.certificate) in selection.summary()


def test_the_same_certificate_as_from_python(select: Select, run: Run) -> None:
    select("pool.npy", "--target", "target.npy")
    run("certify", "out")
    found = Selection.load("out").certificate
    greedy = uniproto.Greedy()
    expected = uniproto.select(X, K, Y, method=greedy, certify=True).certificate
    assert found.lower_bound == expected.lower_bound
    np.testing.assert_array_equal(found.prices, expected.prices)
    select("pool.npy", "--target", "target.npy", "--certify")
    assert Selection.load("out").certificate.lower_bound == expected.lower_bound
    assert_yes(run)


def test_seconds_and_certify_of_select(run: Run) -> None:
    status, out, _ = run("select", "pool.npy", "-k", K, "-o", "out", "--seconds", "1", "--certify")
    assert status == 0
    assert "no choice can be below" in out or "is the least possible" in out
    manifest = read_manifest()
    assert manifest["options"]["seconds"] == 1
    assert manifest["cost"] <= uniproto.select(X, K).cost
    status, _, err = run("select", "pool.npy", "-k", K, "--seconds", "1", "--method", "random")
    assert status == 2
    assert "--seconds needs --method uniproto" in err


def test_a_cost_that_is_only_an_upper_bound(
    select: Select, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prototypes, "_DENSE_ENTRIES", 0)
    monkeypatch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    monkeypatch.setattr(prototypes, "LARGEST_TARGET", 0)
    select("pool.npy")
    assert run("certify", "out")[1].startswith("cost at most ")
    assert "no plan of these rows costs less" not in assert_yes(run)
    forge(lambda manifest: manifest.update(cost_is_exact=True))
    assert_no(run, "no plan of these rows costs less")


def test_a_bound_of_zero(run: Run) -> None:
    np.save("costs.npy", np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]]).repeat(2, axis=0))
    # The method does not know that two halves are wanted; no bound can be above 0.
    arguments = ["costs.npy", "-k", 2, "--metric", "precomputed", "--method", "random"]
    for seed in range(20):
        run("select", *arguments, "-o", "out", "--quiet", "--seed", seed)
        if Selection.load("out").cost > 0:
            break
    assert "the bound says nothing" in run("certify", "out")[1]
    assert read_manifest()["certificate"]["gap"] is None
    assert "Infinity" not in Path("out", "manifest.json").read_text()
    assert_yes(run)


def test_certify_again_goes_on(run: Run) -> None:
    np.save("pool.npy", np.random.default_rng(1).normal(size=(300, 5)))
    run("select", "pool.npy", "-k", 20, "-o", "out", "--quiet")
    bounds = []
    for _ in range(3):
        status, out, _ = run("certify", "out", "--seconds", "0.02")
        assert status == 0
        bounds.append(Selection.load("out").certificate.lower_bound)
        assert Selection.load("out").certificate.converged == ("stopped early" not in out)
        assert_yes(run)
    assert bounds[0] <= bounds[1] * (1 + 1e-6)
    assert bounds[1] <= bounds[2] * (1 + 1e-6)
    run("certify", "out")
    whole = Selection.load("out").certificate
    assert whole.converged
    assert whole.lower_bound >= bounds[-1] * (1 - 1e-6)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_an_earlier_bound_stays_only_where_its_prices_prove_it(
    select: Select, run: Run, share: float
) -> None:
    select("pool.npy", "--certify")
    honest = read_manifest()["certificate"]["lower_bound"]
    raised = honest + share * (read_manifest()["cost"] - honest)
    forge(lambda manifest: manifest["certificate"].update(lower_bound=raised))
    status, out, _ = run("certify", "out")
    assert (status, "stays" in out) == (0, False)
    assert read_manifest()["certificate"]["lower_bound"] == pytest.approx(honest, rel=1e-6)
    assert_yes(run)


# Tampering. Every change is made by somebody careful, who also renews the digests.


def test_a_changed_index(select: Select, run: Run) -> None:
    select("pool.npy", "--certify")
    shutil.copytree("out", "honest")
    chosen = Selection.load("out").indices.tolist()
    other = next(row for row in range(M) if row not in chosen)
    cases = [
        (lambda rows: np.where(np.arange(K) == 2, other, rows), "the plan costs what is written"),
        (lambda rows: rows[::-1].copy(), "the plan costs what is written"),
        (lambda rows: np.where(np.arange(K) == 2, rows[0], rows), None),
        (lambda rows: np.where(np.arange(K) == 2, M, rows), None),
        (lambda rows: np.where(np.arange(K) == 2, -1, rows), None),
    ]
    for change, claim in cases:
        shutil.copytree("honest", "out", dirs_exist_ok=True)
        change_column("index", change)
        assert_no(run, "files of the result")
        forge()
        assert_no(run, *([claim] if claim else []))
        if claim is None:
            for command in ("verify", "certify"):
                status, _, err = run(command, "out")
                assert (status, "its rows are not different rows of the source" in err) == (2, True)


def test_prototypes_that_no_longer_have_equal_weights(select: Select, run: Run) -> None:
    select("pool.npy")
    change_column("mass", lambda mass: np.where(np.arange(K) == 0, 1.5, 0.9) * mass)
    forge()
    assert "its prototypes do not all have the same weight" in run("verify", "out")[2]
    assert_no(run)


def test_weights_that_only_the_method_could_find_again(select: Select, run: Run) -> None:
    select("pool.npy", "--method", "kmedoids")
    assert "(weights that kmedoids learned are not checked)" in assert_yes(run)
    change_column("mass", lambda mass: mass[::-1])
    forge()
    assert "are not checked" in assert_yes(run)


def test_a_changed_cost_is_not_certified(select: Select, run: Run) -> None:
    select("pool.npy")
    forge(lambda manifest: manifest.update(cost=manifest["cost"] * 0.99))
    status, _, err = run("certify", "out")
    assert status == 2
    assert "its rows cost" in err
    assert "certificate" not in read_manifest()


def test_a_changed_plan(select: Select, run: Run) -> None:
    select("pool.npy", "--target", "target.npy")
    shutil.copytree("out", "honest")

    def more(plan: sp.csr_array) -> sp.csr_array:
        plan.data[0] *= 1.001
        return plan

    def elsewhere(plan: sp.csr_array) -> sp.csr_array:
        whole = plan.toarray()
        whole[0] = np.roll(whole[0], 1)
        return sp.csr_array(whole)

    def negative(plan: sp.csr_array) -> sp.csr_array:
        whole = plan.toarray()
        whole[0, :2] += [0.1, -0.1]
        whole[1, :2] += [-0.1, 0.1]
        return sp.csr_array(whole)

    def other_target(plan: sp.csr_array) -> sp.csr_array:
        whole = plan.toarray()
        whole[0] = whole[0][::-1]
        return sp.csr_array(whole)

    damages = (more, negative, lambda plan: plan * np.nan, lambda plan: plan * 0)
    for change in (elsewhere, other_target, *damages):
        shutil.copytree("honest", "out", dirs_exist_ok=True)
        change_plan(change)
        forge()
        assert_no(run, *([] if change in damages else ["the plan gives every chosen row"]))


def test_a_worse_plan_at_its_own_cost(select: Select, run: Run) -> None:
    """A plan with the right marginals whose true cost is written: only another solve tells."""
    select("pool.npy")
    problem_costs = uniproto.select(X, K)._problem.costs.exact_block(Selection.load("out").indices)
    change_plan(lambda plan: sp.csr_array(np.full((K, M), 1 / (K * M))))
    forge(lambda manifest: manifest.update(cost=float(problem_costs.mean())))
    assert_no(run, "no plan of these rows costs less")


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v * 0.5,
        lambda v: v[::-1],
        lambda v: v * 0,
        lambda v: v * 1e15,
        lambda v: v * 1e300,
    ],
)
def test_changed_prices(
    select: Select, run: Run, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    select("pool.npy", "--certify")
    with np.load(Path("out", "certificate.npz")) as arrays:
        prices = arrays["prices"]
    np.savez(Path("out", "certificate.npz"), prices=change(prices))
    assert_no(run, "files of the result")
    forge()
    assert_no(run, "the prices prove it")


def test_a_raised_bound(select: Select, run: Run) -> None:
    select("pool.npy", "--certify")

    def raise_bound(manifest: dict[str, Any], bound: float) -> None:
        record = manifest["certificate"]
        record["lower_bound"] = bound
        record["gap"], record["absolute_gap"] = (
            manifest["cost"] / bound - 1,
            manifest["cost"] - bound,
        )

    cost, bound = read_manifest()["cost"], read_manifest()["certificate"]["lower_bound"]
    for raised in (bound * (1 + 1e-8), bound * 1.001, cost):
        forge(lambda manifest, raised=raised: raise_bound(manifest, raised))
        assert_no(run, "the prices prove it")
    forge(lambda manifest: raise_bound(manifest, cost * 1.01))
    assert "its lower bound is above its cost" in run("verify", "out")[2]
    assert_no(run)
    forge(lambda manifest: raise_bound(manifest, bound * 0.9))  # weaker, and true
    assert_yes(run)


def write_prices(change: Callable[[np.ndarray], np.ndarray]) -> None:
    with np.load(Path("out", "certificate.npz")) as arrays:
        prices = arrays["prices"]
    np.savez(Path("out", "certificate.npz"), prices=change(prices))


@pytest.mark.parametrize("constant", [1e14, 1e16, 1e300, -1e14, -1e300])
def test_a_constant_added_to_the_prices_excuses_no_bound(
    select: Select, run: Run, constant: float
) -> None:
    """The tolerance once grew with the prices: any bound passed, also one above the cost."""
    select("pool.npy", "--certify")
    manifest = read_manifest()
    cost, bound = manifest["cost"], manifest["certificate"]["lower_bound"]
    write_prices(lambda prices: prices + constant)
    for raised in (bound * 1.01, cost, 5 * cost):

        def raise_bound(manifest: dict[str, Any], raised: float = raised) -> None:
            gap = {"gap": max(cost / raised - 1, 0.0), "absolute_gap": max(cost - raised, 0.0)}
            manifest["certificate"].update(lower_bound=raised, **gap)

        forge(raise_bound)
        assert_no(run, *(["the prices prove it"] if raised <= cost else []))


@pytest.mark.parametrize(
    "options",
    [["-k", 1, "--method", "random"], ["--include", "3,7"], ["--target-weights", "weight"]],
)
@pytest.mark.parametrize("place", [0, -1])
def test_one_huge_price_excuses_no_bound(
    select: Select, run: Run, options: list[object], place: int
) -> None:
    pool = PARQUET if "--target-weights" in options else ["pool.npy"]
    select(*pool, "--certify", *options)
    bound = read_manifest()["certificate"]["lower_bound"]
    for price in (1e15, 1e300, -1e15):
        write_prices(lambda prices, price=price: np.where(np.arange(M) == place % M, price, prices))
        forge(lambda manifest: manifest["certificate"].update(lower_bound=bound * 1.001))
        assert_no(run, "the prices prove it")


@pytest.mark.parametrize("options", [[], ["--exclude", "0,5"], ["--groups", "source"]])
def test_a_false_proof_that_no_choice_costs_less(
    select: Select, run: Run, options: list[object]
) -> None:
    """A word in the record, with a certificate to match or without, or in the certificate alone."""
    select(*PARQUET, "--certify", *options)
    shutil.copytree("out", "honest")

    def say(manifest: dict[str, Any]) -> None:
        manifest["notes"].update(proof="each of 9 sets of rows was compared", least=cost)

    def certify(manifest: dict[str, Any]) -> None:
        gap = {"lower_bound": cost, "gap": 0.0, "absolute_gap": 0.0}
        manifest["certificate"].update(gap, proof="each of 9 sets of rows was compared")

    cost = read_manifest()["cost"]
    for changes in ([say], [certify], [say, certify]):
        shutil.copytree("honest", "out", dirs_exist_ok=True)
        for change in changes:
            forge(change)
        doubted = ["no choice of 6 rows can be below the lower bound"] if certify in changes else []
        assert_no(run, "no choice of 6 rows costs less", *doubted)
    shutil.copytree("honest", "out", dirs_exist_ok=True)
    forge(say)
    honest = read_manifest(Path("honest"))["certificate"]["lower_bound"]
    status, out, _ = run("certify", "out")  # which does not take anybody's word
    assert (status, "gap 0.00%" in out) == (0, False)
    assert read_manifest()["certificate"]["lower_bound"] == pytest.approx(honest, rel=1e-6)
    assert "proof" not in read_manifest()["certificate"]


@pytest.mark.usual_effort
@pytest.mark.parametrize("pool", ["few.npy", "line.npy"])
def test_a_bound_above_what_comparing_sets_proves(select: Select, run: Run, pool: str) -> None:
    np.save("few.npy", X[:14])
    np.save("line.npy", X[:, :1])
    source = np.load(pool)
    select(pool, "--metric", "euclidean", "--method", "uniproto", "--certify")
    assert "proof" in read_manifest()["certificate"]
    said = assert_yes(run)
    assert "no choice of 6 rows costs less: the proof was found again" in said
    assert "the same proof says so" in said
    chosen = Selection.load("out").indices.tolist()
    other = next(row for row in range(len(source)) if row not in chosen)
    rows = [other, *chosen[1:]]
    proof = read_manifest()["notes"]["proof"]
    cost = uniproto.cost(source, rows, metric="euclidean")
    select(pool, "--metric", "euclidean", "--include", ",".join(map(str, rows)), "--certify")

    def forged(manifest: dict[str, Any]) -> None:
        del manifest["arguments"]["include"]
        manifest["notes"] |= {"proof": proof, "least": cost}

    forge(forged)
    assert_no(run, "no choice of 6 rows costs less", "below the lower bound")


def test_verify_writes_nothing(select: Select, run: Run, inside: Path) -> None:
    select(*GROUPS, "--certify", "--id", "doc")

    def state() -> dict[str, Any]:
        paths = [path for path in inside.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

    before = state()
    assert_yes(run)
    Path("out", "prototypes.csv").write_text("mine")
    assert_no(run, "files of the result have not changed (prototypes.csv)")
    assert {**state(), str(inside / "out" / "prototypes.csv"): None} == {
        **before, str(inside / "out" / "prototypes.csv"): None,
    }  # fmt: skip


def update(entry: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["arguments"].update({entry: value})


def with_features(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["arguments"]["features"].update(values)


BUDGETS = {"kind": "mapping", "items": [["web", 5], ["本", 1]]}


ALLOWED = "6 different rows of the source are chosen, all of them allowed"
NAMES = "rows and ids are those of the inputs"
CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], list[str]]] = {
    "metric": (update("metric", "l1"), ["the record agrees"]),
    "k": (update("k", 5), []),
    "weights": (update("target_weights", "weight"), ["the plan gives"]),
    "exclude": (update("exclude", "{first}"), [f"{ALLOWED} (an excluded row is chosen)"]),
    "include": (update("include", "{last},{first}"), [f"{ALLOWED} (the given rows do not come"]),
    "budgets": (
        lambda manifest: manifest["arguments"]["groups"].update(budgets=BUDGETS),
        [f"{ALLOWED} (group web has another number"],
    ),
    "id": (with_features(id="source"), [f"{NAMES} (selection.parquet, plan.npz, manifest.json)"]),
    "column": (with_features(use=["nothing"]), []),
    "sample": (update("method", {"kind": "Greedy", "sample": 0.5}), ["the record agrees"]),
    "method": (update("method", "nobody"), []),
    "another method": (update("method", "random"), ["the record agrees"]),
    "seed": (update("seed", 3), ["the record agrees"]),
    "no column": (lambda manifest: manifest["arguments"]["features"].pop("use"), []),
    "odd rows": (update("exclude", 7), []),
    "target": (update("target", "target.npy"), []),
    "group cost": (
        lambda manifest: manifest["group_costs"].__setitem__(0, ["web", 0.001]),
        ["the groups cost what is written"],
    ),
    "group label": (
        lambda manifest: manifest["group_costs"].__setitem__(0, ["net", 0.001]),
        ["the groups cost what is written"],
    ),
    "ids": (
        lambda manifest: manifest["id"]["prototypes"].__setitem__(2, "doc 1 é"),
        [f"{NAMES} (manifest.json)"],
    ),
    "no digests": (lambda manifest: manifest.update(files={}), ["files of the result"]),
    "digest of the input": (
        lambda manifest: manifest["inputs"]["source"].update(sha256="0"),
        ["the input files have not changed"],
    ),
    "shape of the input": (
        lambda manifest: manifest["inputs"]["source"].update(shape=[1, 2]),
        ["the input files have not changed"],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_record(name: str, select: Select, run: Run) -> None:
    select(*GROUPS, "--id", "doc", "--budgets", "web=3,本=3")
    first, last = Selection.load("out").indices[[0, -1]].tolist()
    change, claims = CHANGES[name]

    def fill_in(manifest: dict[str, Any]) -> None:
        change(manifest)
        for entry in ("exclude", "include"):
            value = manifest["arguments"].get(entry)
            if isinstance(value, str):
                rows = value.format(first=first, last=last).split(",")
                manifest["arguments"][entry] = [*map(int, rows)]

    forge(fill_in)
    assert_no(run, *claims)


# How a result came about, and where its input was, is the record's word alone; so are gains.
UNCHECKED = (
    *("uniproto", "beta", "notes.stages", "notes.metric_from"),
    *("timings", "inputs.source.path", "places", "selection.gain"),
    *("certificate.converged", "certificate.steps", "certificate.seconds"),
)


def entries(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, dict | list) and part:
            yield from entries(part, (*path, name))
        else:
            yield (*path, name), part


def other_value(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, str):
        return f"~{value[1:]}"
    return type(value)(value * 2 + 1) if isinstance(value, int | float) else ["x"]


@pytest.mark.usual_effort
def test_every_number_and_word_of_a_result(select: Select, run: Run) -> None:
    """One after the other is changed, by somebody who renews the digests."""
    numbers = X[:9, :2].astype(float)
    table = {"doc": [f"doc {row}" for row in range(9)], "size": numbers[:, 0], "age": numbers[:, 1]}
    pq.write_table(pa.table(table), "few.parquet")
    select("few.parquet", "-k", 2, "--id", "doc", "--method", "uniproto", "--certify")
    assert_yes(run)
    shutil.copytree("out", "honest")
    accepted = set()

    def look(name: str) -> None:
        forge()
        if run("verify", "out")[0] == 0:
            accepted.add(name)
        shutil.copytree("honest", "out", dirs_exist_ok=True)

    for path, value in entries(read_manifest()):
        if path[0] in ("files", "arguments"):  # renewed, and looked at above
            continue
        manifest = read_manifest()
        functools.reduce(operator.getitem, path[:-1], manifest)[path[-1]] = other_value(value)
        Path("out", "manifest.json").write_text(json.dumps(manifest), "utf-8")
        look(".".join(map(str, path)))
    for file in ("selection", "prototypes"):
        rows = pq.read_table(f"out/{file}.parquet")
        for place, column in enumerate(rows.column_names):
            first, *rest = rows[column].to_pylist()
            forged = rows.set_column(place, column, pa.array([other_value(first), *rest]))
            pq.write_table(forged, f"out/{file}.parquet")
            look(f"{file}.{column}")
    with np.load("out/plan.npz") as arrays:
        content = dict(arrays)
    for name in ("shape", "data", "indices", "indptr", "prototype_ids", "target_ids"):
        forged = content[name].copy()
        forged.flat[0] = other_value(forged.flat[0].item())
        np.savez("out/plan.npz", **{**content, name: forged})
        look(f"plan.{name}")
    text = Path("out", "prototypes.csv").read_text()
    for cell in {cell for line in text.splitlines() for cell in line.split(",")}:
        Path("out", "prototypes.csv").write_text(text.replace(cell, cell + "1", 1))
        look(f"prototypes.csv: {cell}")
    assert {name for name in accepted if not name.startswith(UNCHECKED)} == set()
    assert all(any(name.startswith(some) for name in accepted) for some in UNCHECKED)


def test_twins(select: Select, run: Run) -> None:
    select("pool.npy", "--metric", "euclidean")
    rows = Selection.load("out").indices
    apart = np.linalg.norm(X[rows][:, None] - X[rows][None], axis=2)
    nearest = float(apart[np.triu_indices(K, 1)].min())
    forge(update("min_distance", nearest * 0.99))
    assert_yes(run)
    forge(update("min_distance", nearest * 1.01))
    assert_no(run, "two chosen rows are near-duplicates")


def test_excluded_rows_of_another_choice(select: Select, run: Run) -> None:
    select("pool.npy", "--exclude-near", "target.npy", "0.02", "--metric", "cosine")
    path = Path("out", "excluded.csv")
    assert_yes(run)
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) > 2
    for forged in (lines[:-1], [*lines, "39" + lines[-1].lstrip("0123456789")], ["", "nothing"]):
        path.write_text("".join(forged))
        assert_no(run, "files of the result have not changed (excluded.csv)")
        forge()
        assert_no(run, f"{NAMES} (excluded.csv)")


# Inputs and folders


def test_a_changed_file_of_a_folder(select: Select, run: Run) -> None:
    select(*OPTIONS["a folder"])
    pq.write_table(as_table(X[14:]), "parts/second.parquet")
    assert_no(run, "the input files have not changed")


@pytest.mark.parametrize("name", ["pool.npy", "target.npy"])
def test_a_changed_input(select: Select, run: Run, name: str) -> None:
    select("pool.npy", "--target", "target.npy")
    content = bytearray(Path(name).read_bytes())
    content[-1] ^= 1
    Path(name).write_bytes(content)
    assert_no(run, f"the input files have not changed ({Path(name).resolve()}")
    status, out, err = run("certify", "out")
    assert (status, out) == (2, "")
    assert "It has changed since" in err
    Path(name).write_bytes(b"no array at all")
    assert_no(run, "the input files have not changed")


@pytest.mark.parametrize("command", ["certify", "verify"])
def test_what_cannot_be_read(select: Select, run: Run, command: str) -> None:
    folder = select("pool.npy", "--certify")
    for place in ("nowhere", "pool.npy"):
        status, out, err = run(command, place)
        assert (status, out) == (2, "")
        assert "holds no saved selection" in err
    Path("pool.npy").rename("gone.npy")
    status, out, err = run(command, folder)
    assert (status, out) == (2, "")
    assert "there is no such file" in err
    Path("gone.npy").rename("pool.npy")
    (folder / "plan.npz").write_bytes(b"hello")
    forge()
    status, out, err = run(command, folder)
    assert (status, "verified" in out) == (2, False)
    assert "It is damaged" in err
    uniproto.select(X, K).save("saved")
    status, out, err = run(command, "saved")
    assert (status, out) == (2, "")
    assert "made in Python, from data that are not on record" in err


def test_a_full_disk_keeps_the_old_certificate(
    select: Select, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = select("pool.npy", "--certify")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("numpy.savez_compressed", full)
        status, _, err = run("certify", folder)
    assert status == 2
    assert "No space left on device" in err
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert_yes(run)


def test_one_huge_cost_that_no_plan_pays_excuses_nothing(select: Select, run: Run) -> None:
    """The tolerance was once a share of the largest cost: 0.0142 passed for 0.0710."""
    costs = np.abs(X @ Y.T)
    costs[3, 4] = 1e12
    np.save("costs.npy", costs)
    select("costs.npy", "--metric", "precomputed", "--certify")
    assert_yes(run)
    forge(lambda manifest: manifest.update(cost=0.2 * manifest["cost"]))
    assert_no(run)  # below its own lower bound
    select("costs.npy", "--metric", "precomputed")
    forge(lambda manifest: manifest.update(cost=0.2 * manifest["cost"]))
    assert_no(run, "the plan costs what is written", "no plan of these rows costs less")
    select("costs.npy", "--metric", "precomputed", "--certify")

    def no_gap(manifest: dict[str, Any]) -> None:
        cost = manifest["cost"]
        manifest["certificate"].update(lower_bound=cost, gap=0.0, absolute_gap=0.0)

    forge(no_gap)
    assert_no(run, "the prices prove it")


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "l1", "cosine"])
@pytest.mark.parametrize("far", [1e9, 1e15])
def test_one_far_row_excuses_nothing(select: Select, run: Run, metric: str, far: float) -> None:
    """The tolerance once grew with the largest distance: at 1e15 every cost passed."""
    rows = X.astype(np.float64)
    rows[3] = far
    np.save("far.npy", rows)
    np.save("near.npy", Y.astype(np.float64))
    select("far.npy", "--target", "near.npy", "--metric", metric, "--exclude", "3")
    assert_yes(run)
    for factor in (1 - 1e-6, 1 + 1e-6, 3.0):
        honest = read_manifest()["cost"]
        forge(lambda manifest, factor=factor: manifest.update(cost=manifest["cost"] * factor))
        assert_no(run, "the plan costs what is written", "no plan of these rows costs less")
        forge(lambda manifest, honest=honest: manifest.update(cost=honest))

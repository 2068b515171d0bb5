"""`uniproto select … -o out` and `uniproto.select(…).save("out")` write the same folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import uniproto
from uniproto.cli import main
from uniproto.cli.inputs import recorded_command, spec_of
from uniproto.cli.recorded_inputs import recorded_call
from uniproto.features.model_features import Text
from uniproto.selection.call import asked_of, called, recorded

pytestmark = pytest.mark.filterwarnings("ignore::uniproto.errors.DataWarning")
ROWS = 40
WORDS = ["storm", "rain", "shares", "bank", "goal", "match", "pasta", "soup"]


@pytest.fixture(autouse=True)
def files(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIPROTO_CACHE", str(inside / "cache"))
    draw = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "name": [f"row {row}" for row in range(ROWS)],
            "age": draw.integers(20, 80, ROWS) + 0.5,
            "income": draw.normal(3000, 500, ROWS).round(2),
            "kind": draw.choice(list("abc"), ROWS),
            "zip": draw.integers(1, 4, ROWS),
        }
    )
    table.to_csv("people.csv", index=False)
    table[:15].to_csv("wanted.csv", index=False)
    np.save("vectors.npy", draw.normal(size=(ROWS, 4)))
    np.savez("two.npz", first=draw.normal(size=(ROWS, 4)), second=np.ones((ROWS, 2)))
    texts = [f"{WORDS[row % 8]} {WORDS[row % 5]} {row}" for row in range(10)]
    texts[3] = ""
    pd.DataFrame({"text": texts, "doc": range(10)}).to_csv("texts.csv", index=False)


Columns, Limits, Groups = uniproto.Columns, uniproto.Limits, uniproto.Groups
SAME: dict[str, tuple[Any, ...]] = {
    "people.csv -k 4": (),
    "vectors.npy -k 4 --certify": ({"certify": True},),
    "vectors.npy -k 4 --metric rbf --bandwidth 2 --seed 3": (
        {"metric": uniproto.RBF(2.0), "seed": 3},
    ),
    "two.npz -k 4 --column first": ({"features": Columns(use=["first"], prepare=False)},),
    "people.csv -k 4 --id name --groups kind --target wanted.csv": (
        {"features": Columns(id="name"), "groups": "kind", "target": "wanted.csv"},
    ),
    "people.csv -k 6 --groups kind --budgets a=1,b=2,c=3 --scale minmax": (
        {
            "features": Columns(scale="minmax"),
            "groups": Groups("kind", budgets={"a": 1, "b": 2, "c": 3}),
        },
    ),
    "people.csv -k 5 --at-most zip:1=1 --at-most zip:*=3 --columns age,income": (
        {
            "features": Columns(use=["age,income"]),
            "limits": Limits("zip", at_most={"1": 1, "*": 3}),
        },
    ),
    "people.csv -k 5 --include 3,7 --exclude 0 --min-distance --method random": (
        {"include": [3, 7], "exclude": [0], "min_distance": "auto", "method": "random"},
    ),
    "vectors.npy -k 4 --method greedy --plan resolve --target-weights density:q=3": (
        {"method": uniproto.Greedy(plan="resolve"), "target_weights": uniproto.Density(q=3)},
    ),
    "people.csv -k 4 --target-weights balanced --labels kind --categories zip": (
        {
            "features": Columns(categories=["zip"]),
            "target_weights": uniproto.Balanced("kind"),
        },
    ),
    "people.csv -k 4 --weights age=2,income=0.5 --missing income=-1 --cyclic age=100": (
        {
            "features": Columns(
                weights={"age": 2.0, "income": 0.5},
                missing={"income": -1.0},
                cyclic={"age": 100.0},
            )
        },
    ),
    "texts.csv -k 3 --text text --on-error skip --id doc": (
        {"features": Text("text", on_error="skip", id="doc")},
    ),
}


def content(folder: str) -> dict[str, str]:
    """The digest of every file, the manifest without times."""
    found = {}
    for path in sorted(Path(folder).iterdir()):
        data = path.read_bytes()
        if path.name == "manifest.json":
            manifest = json.loads(data)
            manifest["files"].pop("certificate.npz", None)
            for times in (manifest["timings"], manifest.get("certificate", {})):
                for name in [each for each in times if each != "gap"]:
                    times.pop(name) if isinstance(times[name], float) else None
            for notes in (manifest["notes"], *manifest["notes"].values()):  # also of groups
                if isinstance(notes, dict):
                    notes.pop("stages", None)
            data = json.dumps(manifest, sort_keys=True).encode()
        found[path.name] = hashlib.sha256(data).hexdigest()
    return found


@pytest.mark.parametrize("line", SAME)
def test_the_command_and_the_call_write_the_same_folder(line: str) -> None:
    (given,) = SAME[line] or ({},)
    pool, _, k, *_ = line.split()
    assert main(["select", *line.split(), "--quiet", "-o", "command"]) == 0
    uniproto.select(Path(pool), int(k), progress=False, **given).save("call")
    assert content("command") == content("call")
    assert main(["verify", "call"]) == 0


@pytest.mark.parametrize("line", SAME)
def test_a_record_says_the_call_and_the_command(line: str) -> None:
    assert main(["select", *line.split(), "--quiet", "-o", "out"]) == 0
    manifest = json.loads(Path("out/manifest.json").read_text())
    call = recorded_call(manifest)
    assert recorded(call) == manifest["arguments"]
    words = recorded_command(call, manifest, "again")
    assert words is not None
    assert main([*words[1:], "--quiet"]) == 0
    again = json.loads(Path("again/manifest.json").read_text())
    assert again["arguments"] == manifest["arguments"]


def test_a_call_that_no_command_says() -> None:
    features = Columns(missing=-1)
    uniproto.select("people.csv", 4, features=features).save("out")
    call = recorded_call(json.loads(Path("out/manifest.json").read_text()))
    assert call["features"] == features
    assert spec_of(call) is None
    assert main(["verify", "out"]) == 0
    assert main(["report", "out", "--quiet"]) == 0
    assert "uniproto.select(" in Path("out/report.html").read_text()


OF_THE_CALLER: dict[str, Callable[[], dict[str, Any]]] = {
    "rows": lambda: {"source": np.load("vectors.npy")},
    "labels": lambda: {"groups": list("ab") * (ROWS // 2)},
    "weights": lambda: {"target_weights": np.arange(1.0, ROWS + 1)},
    "a target": lambda: {"target": np.load("vectors.npy")[:9]},
}


@pytest.mark.parametrize("what", OF_THE_CALLER)
def test_data_of_the_caller_are_not_on_record(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"source": "vectors.npy", "k": 4, **OF_THE_CALLER[what]()}
    if what == "labels":
        given["groups"] = np.array(given["groups"])
    uniproto.select(**given).save("out")
    assert "arguments" not in json.loads(Path("out/manifest.json").read_text())
    assert main(["verify", "out"]) == 2
    assert "made in Python, from data that are not on record" in capsys.readouterr().err
    assert main(["report", "out", "--quiet"]) == 0


def test_only_our_own_values_are_made_of_a_record() -> None:
    for forged in ({"kind": "Path", "x": 1}, {"kind": "Columns", "steps": 1}, {"other": 1}):
        with pytest.raises((KeyError, TypeError)):
            called({"features": forged})
    assert recorded(asked_of({"groups": object()}, 3, uniproto.Random())) is None

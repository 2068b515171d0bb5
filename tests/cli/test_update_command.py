"""`uniproto update` and `uniproto drift`, and what other commands make of an update."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from uniproto.cli import main
from uniproto.selection.selection import Selection

MARCH = "march.csv"


@pytest.fixture
def folder(inside: Path) -> Path:
    draw = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "name": [f"p{row}" for row in range(110)],
            "age": draw.normal(40, 9, 110),
            "size": draw.normal(170, 9, 110),
        }
    )
    rows.loc[80:, ["age", "size"]] += 40
    rows[:80].to_csv(MARCH, index=False)
    rows.sample(frac=1, random_state=1).to_csv("april.csv", index=False)
    assert main(["select", MARCH, "-k", "6", "--id", "name", "-o", "march", "--quiet"]) == 0
    return inside


def names(folder: str) -> set[str]:
    return set(pd.read_csv(Path(folder) / "prototypes.csv")["name"])


def test_an_update_keeps_names_and_can_be_verified(folder, capsys):
    asked = ["update", "march", "april.csv", "--changes", "2", "--certify", "-o", "april"]
    assert main(asked) == 0
    assert "4 of 6 prototypes stay" in capsys.readouterr().out
    assert len(names("april") - names("march")) == 2
    assert main(["verify", "april"]) == 0
    assert "at least 4 earlier prototypes" in capsys.readouterr().out
    assert main(["certify", "april", "--quiet"]) == 0
    assert main(["report", "april", "--quiet"]) == 0
    page = (folder / "april" / "changes.html").read_text(encoding="utf-8")
    assert "4 of 6 prototypes stay" in page
    loaded = Selection.load("april")
    assert loaded.details.updated.newcomers == 2
    assert loaded.summary().count("keeps 4 of the 6 earlier ones") == 1
    assert main(["update", "april", "april.csv", "--changes", "0", "-o", "may", "--quiet"]) == 0
    assert names("may") == names("april")


def test_weights_by_a_word_are_recorded_as_for_a_fresh_selection(folder):
    weighed = ["--target-weights", "density:q=9", "-o", "weighed", "--quiet"]
    assert main(["select", MARCH, "-k", "6", "--id", "name", *weighed]) == 0
    assert main(["update", "weighed", "april.csv", "-o", "april", "--quiet"]) == 0
    assert main(["verify", "april"]) == 0


def test_a_result_that_breaks_the_rule_is_not_verified(folder, capsys):
    assert main(["update", "march", "april.csv", "--changes", "2", "-o", "april", "--quiet"]) == 0
    path = folder / "april" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["update"]["allowed"] = 1
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert main(["verify", "april"]) == 1
    assert "earlier prototypes" in capsys.readouterr().out


def test_without_ids_rows_are_found_by_their_values(folder):
    assert main(["select", MARCH, "-k", "6", "--ignore", "name", "-o", "plain", "--quiet"]) == 0
    assert main(["update", "plain", "april.csv", "--changes", "0", "-o", "same", "--quiet"]) == 0
    assert names("same") == names("plain")


def test_vectors_are_found_in_the_file_they_were_chosen_from(folder):
    rows = np.random.default_rng(0).normal(size=(50, 3))
    np.save("march.npy", rows)
    np.save("april.npy", rows[::-1] * 1.0)
    assert main(["select", "march.npy", "-k", "4", "-o", "vectors", "--quiet"]) == 0
    assert main(["update", "vectors", "april.npy", "--changes", "0", "-o", "v2", "--quiet"]) == 0
    assert main(["verify", "v2"]) == 0
    chosen = Selection.load("v2").indices
    assert set(49 - chosen) == set(Selection.load("vectors").indices)


def test_drift_says_so_by_its_exit_status(folder, capsys):
    assert main(["drift", "march", MARCH]) == 0
    assert main(["drift", "march", "april.csv"]) == 1
    assert "age" in capsys.readouterr().out


def test_what_an_update_cannot_do_is_said(folder, capsys):
    few = pd.read_csv(MARCH)
    few[~few["name"].isin(names("march"))].to_csv("others.csv", index=False)
    assert main(["update", "march", "others.csv", "--changes", "2", "-o", "no", "--quiet"]) == 2
    assert "at least 6" in capsys.readouterr().err
    aimed = ["select", MARCH, "-k", "4", "--target", "april.csv", "-o", "aimed", "--quiet"]
    assert main(aimed) == 0
    assert main(["update", "aimed", "april.csv", "-o", "no", "--quiet"]) == 2
    assert "--target" in capsys.readouterr().err
    assert main(["update", "aimed", MARCH, "--target", "april.csv", "-o", "yes", "--quiet"]) == 0
    assert main(["verify", "yes"]) == 0

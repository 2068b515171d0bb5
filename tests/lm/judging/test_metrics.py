"""Scores by hand."""

from __future__ import annotations

import math

import pytest

from uniproto.lm.judging.evaluation import Evaluation, accuracy


def test_a_standard_error_is_that_of_a_share() -> None:
    quarter = accuracy([True] * 25 + [False] * 75)
    assert quarter["error"] == pytest.approx(math.sqrt(0.25 * 0.75 / 100))
    assert accuracy([True] * 4) == {"accuracy": 1.0, "error": 0.0}


def test_multirc_and_cb_are_scored_as_superglue_does() -> None:
    def item(dataset: str, number: int, predicted: str, gold: str, group: str | None = None):
        verdict = "right" if predicted == gold else "wrong"
        return {
            "dataset": dataset, "id": f"{dataset}-{number}", "group": group, "gold": gold,
            "predicted": predicted, "verdict": verdict, "how": "likelihood",
        }  # fmt: skip

    items = [
        item("multirc", 0, "yes", "yes", "q0"),
        item("multirc", 1, "no", "no", "q0"),
        item("multirc", 2, "yes", "no", "q1"),
        item("multirc", 3, "no", "yes", "q1"),
        item("cb", 0, "yes", "yes"),
        item("cb", 1, "no", "no"),
        item("cb", 2, "no", "maybe"),
        item("sst2", 0, "positive", "positive"),
    ]
    scores = Evaluation("m", items, {}).scores
    assert scores["multirc"]["accuracy"] == 0.5
    assert scores["multirc"]["f1"] == pytest.approx(0.5)  # 1 of 2 found, 1 of 2 right
    assert scores["multirc"]["exact_match"] == 0.5
    assert scores["cb"]["f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert scores["cb"]["accuracy"] == pytest.approx(2 / 3)
    assert scores["superglue"]["accuracy"] == pytest.approx((0.5 + 2 / 3 + 1) / 3)
    assert "exact match" in Evaluation("m", items, {}).table()

"""Training on chosen rows: losses are the library's own, and features are computed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("peft")

from support.collected import as_instructions, embedded, recipe_of, rows_of, vectors_of
from support.curation import Trainee
from support.lean_lora import make_lean
from support.runs import Setup
from uniproto.lm.features.losses import example_losses


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(None, tmp_path, quick=True, progress=False)


def test_held_out_answers_are_judged_by_their_mean_loss(setup: Setup) -> None:
    recipe = recipe_of(setup, "sums", 4)
    trainee = Trainee(recipe, 0)
    tokens = trainee.tokens(as_instructions(rows_of(None, setup.out, "sums")[:9]))
    expected = example_losses(trainee.model, trainee.collate(tokens))
    judged = trainee.judge(tokens)
    assert judged["loss"] == pytest.approx(float(expected.mean()), rel=1e-5)
    for _ in range(150):
        trainee.step(tokens[:2])
    learned = trainee.judge(tokens[:2])
    assert learned["loss"] < trainee.judge(tokens)["loss"]
    assert 0 <= judged["right"] <= learned["right"] <= 1


def test_a_step_does_not_depend_on_how_many_tokens_go_at_once(setup: Setup) -> None:
    from dataclasses import replace

    recipe = recipe_of(setup, "sums", 4)
    judged = []
    for most in (1, 10_000):
        trainee = Trainee(replace(recipe, tokens_at_once=most), 0)
        tokens = trainee.tokens(as_instructions(rows_of(None, setup.out, "sums")[:9]))
        trainee.step(tokens)
        judged.append(trainee.judge(tokens)["loss"])
    assert judged[0] == pytest.approx(judged[1], rel=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lean_lora_layers_give_the_losses_and_gradients_of_peft(setup: Setup, dtype: str) -> None:
    import torch

    recipe = recipe_of(setup, "sums", 4)
    found = []
    for lean in (False, True):
        trainee = Trainee(recipe, 0)
        trainee.model.to(getattr(torch, dtype))
        tokens = trainee.tokens(as_instructions(rows_of(None, setup.out, "sums")[:9]))
        torch.manual_seed(1)
        trained = [each for each in trainee.model.parameters() if each.requires_grad]
        for each in trained:  # LoRA starts at zero, where half of its gradients are zero
            each.data = each.data.float() + 0.05 * torch.randn(each.shape)
        if lean:
            make_lean(trainee.model)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            losses, _, _ = trainee._of_answers(tokens)
        losses.mean().backward()
        assert {each.grad.dtype for each in trained} == {torch.float32}
        found.append((losses.detach(), torch.cat([each.grad.flatten() for each in trained])))
    rounding = 1e-5 if dtype == "float32" else 0.1
    for theirs, ours in zip(*found, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < rounding


def test_lower_blocks_are_computed_once_and_change_no_loss(setup: Setup) -> None:
    from dataclasses import replace

    recipe = recipe_of(setup, "sums", 4)
    rows = as_instructions(rows_of(None, setup.out, "sums")[:9])
    whole, upper = Trainee(recipe, 0), Trainee(replace(recipe, blocks=1), 0)
    tokens = whole.tokens(rows)
    assert len(upper.model.get_base_model().base_model.layers) == 1
    assert upper.judge(tokens)["loss"] == pytest.approx(whole.judge(tokens)["loss"], rel=1e-5)
    before = upper.judge(tokens)["loss"]
    known = len(upper.below.rows)
    for _ in range(20):
        upper.step(tokens)
    assert upper.judge(tokens)["loss"] < before
    assert len(upper.below.rows) == known <= len(rows)


def test_features_of_a_collection_are_computed_once(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    import support.collected as collected

    recipe = recipe_of(setup, "sums", 4)
    warm = collected.WarmUp(1, ("minus",))
    first = vectors_of(setup, recipe, "sums", "hidden", warm)
    rows = rows_of(None, setup.out, "sums")
    np.testing.assert_allclose(first, embedded(setup, recipe, rows, "hidden"), rtol=1e-6)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(collected, "embedded", refuse)
    again = vectors_of(setup, recipe, "sums", "hidden", warm)
    np.testing.assert_array_equal(first, again)
    assert collected.seconds_of(setup, "sums", "hidden") > 0

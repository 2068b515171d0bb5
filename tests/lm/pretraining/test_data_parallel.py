"""Two virtual devices make the choices of one, and learn the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from tests.lm.pretraining.test_step import CONFIG, SETTINGS, some_pool

from uniproto.errors import InvalidInputError
from uniproto.lm.pretraining.step import initial_state, make_step, make_validation

# For each way of sharing out the work: sketches or whole gradients are gathered.
TRIED = (SETTINGS, replace(SETTINGS, method="colm", features="exact"))


def trained(mesh=None):
    """Picks, loss and gradient of every step, and what a validation sums."""
    start, told = initial_state(CONFIG, SETTINGS, seed=0), []
    if mesh:  # as steps leave it: a step is compiled once
        start = jax.device_put(start, jax.NamedSharding(mesh, jax.P()))
    for settings in TRIED:
        state = jax.tree.map(jnp.copy, start)  # a step uses its state up
        step = make_step(CONFIG, settings, mesh)
        for number in range(3):
            state, report = step(state, some_pool(number))
            told.append([report.picks.tolist(), float(report.loss), float(report.gradient_norm)])
    assert len(state.params["head"].sharding.device_set) == (2 if mesh else 1)
    total, count = make_validation(CONFIG, "float32", mesh)(state.params, some_pool())
    return [*told, [int(count), float(total), 0.0]]


def trained_on_two():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    assert mesh.size == 2
    with pytest.raises(InvalidInputError, match="multiple of the 2 devices"):
        make_step(CONFIG, replace(SETTINGS, keep=3), mesh)
    return trained(mesh)


# Devices are counted when JAX starts, so that two of them need a Python of their own.
PROGRAM = f"import json, {__name__} as here; print(json.dumps(here.trained_on_two()))"


@pytest.mark.slow
def test_two_devices_choose_and_learn_as_one():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    for one, two in zip(trained(), json.loads(ended.stdout), strict=True):
        assert one[0] == two[0]
        assert one[1] == pytest.approx(two[1], rel=1e-4)
        assert one[2] == pytest.approx(two[2], rel=1e-3)

"""A training step of your own in JAX that chooses its batch: one function inside your jit.

Every step looks at 64 examples and learns from 16. `choose_rows` takes their gradients (here of the
last layer, known without a backward pass) and returns the rows which, all with equal weight, best
represent the pool. The example prints how far the chosen gradients' mean lies from the pool's.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from uniproto.lm.pretraining import choose_rows

POOL, KEEP, STEPS, RATE = 64, 16, 60, 0.5


def forward(params, images):
    return jnp.tanh(images @ params["in"]) @ params["out"]


def loss(params, images, labels):
    scores = jax.nn.log_softmax(forward(params, images))
    return -scores[jnp.arange(len(labels)), labels].mean()


def gradients(params, images, labels):
    """Every example's gradient of the last layer: what it reads times its error."""
    hidden = jnp.tanh(images @ params["in"])
    errors = jax.nn.softmax(hidden @ params["out"]) - jax.nn.one_hot(labels, 10)
    return jnp.einsum("bh,bc->bhc", hidden, errors).reshape(len(images), -1)


@partial(jax.jit, static_argnames="way")
def step(params, images, labels, key, way):
    each = gradients(params, images, labels)
    rows = jax.random.permutation(key, POOL)[:KEEP]
    if way == "uniproto":
        rows = choose_rows(each, KEEP)
    change = jax.grad(loss)(params, images[rows], labels[rows])
    params = jax.tree.map(lambda old, new: old - RATE * new, params, change)
    error = jnp.linalg.norm(each[rows].mean(axis=0) - each.mean(axis=0))
    return params, error / jnp.linalg.norm(each.mean(axis=0))


images, labels = load_digits(return_X_y=True)
images = images / 16
for way in ("uniproto", "random"):
    draw, errors = np.random.default_rng(0), []
    shapes = {"in": (64, 32), "out": (32, 10)}
    params = {name: jnp.asarray(draw.normal(0, 0.1, shape)) for name, shape in shapes.items()}
    for number in range(STEPS):
        pool = draw.choice(len(images), POOL, replace=False)
        key = jax.random.fold_in(jax.random.PRNGKey(0), number)
        params, error = step(params, images[pool], labels[pool], key, way)
        errors.append(float(error))
    print(f"{way:9} distance of the chosen gradients' mean from the pool's {np.mean(errors):.3f}")

"""The same with Flax NNX: a model and an optimizer of Flax, and one function inside nnx.jit.

Every step looks at 64 examples and learns from 16. The hidden states and errors of the last layer
give every example's gradient without a backward pass; `choose_rows` returns the rows to learn from.
The example prints how far the chosen gradients' mean lies from the pool's.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

from uniproto.lm.pretraining import choose_rows

POOL, KEEP, STEPS = 64, 16, 60


class Model(nnx.Module):
    def __init__(self, rngs):
        self.body, self.head = nnx.Linear(64, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, images):
        hidden = nnx.tanh(self.body(images))
        return hidden, self.head(hidden)


def loss(model, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model(images)[1], labels).mean()


@partial(nnx.jit, static_argnames="way")
def step(model, optimizer, images, labels, key, way):
    hidden, scores = model(images)
    errors = jax.nn.softmax(scores) - jax.nn.one_hot(labels, 10)
    each = jnp.einsum("bh,bc->bhc", hidden, errors).reshape(len(images), -1)
    rows = jax.random.permutation(key, POOL)[:KEEP]
    if way == "uniproto":
        rows = choose_rows(each, KEEP)
    optimizer.update(model, nnx.grad(loss)(model, images[rows], labels[rows]))
    error = jnp.linalg.norm(each[rows].mean(axis=0) - each.mean(axis=0))
    return error / jnp.linalg.norm(each.mean(axis=0))


images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
for way in ("uniproto", "random"):
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.5), wrt=nnx.Param)
    draw, errors = np.random.default_rng(0), []
    for number in range(STEPS):
        pool = draw.choice(len(images), POOL, replace=False)
        key = jax.random.fold_in(jax.random.PRNGKey(0), number)
        errors.append(float(step(model, optimizer, images[pool], labels[pool], key, way)))
    print(f"{way:9} distance of the chosen gradients' mean from the pool's {np.mean(errors):.3f}")

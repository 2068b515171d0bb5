"""Embedding on Ray: one copy of the model on every GPU of the cluster, or else on every core.

What is read, cached and written stays where the command runs, so that the cache is the same and a
run that was stopped goes on from it; only batches travel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.features.embedded import Model, Readable, Unreadable
from uniproto.scale.cluster import Cluster

_BATCHES_PER_WORKER = 4  # sent at once, so that nobody waits for the slowest one often


def on_ray(cluster: Cluster) -> Callable[[Model], Model]:
    """For the argument `spread` of `embed_text`, `embed_images`, `gradients`, `hidden_states`.

    Every node must have the model where this machine has it: a folder they share, or the hub.
    """
    return lambda model: ModelOnRay(model, cluster)


class ModelOnRay:
    """A model whose batches are computed by workers all over the cluster."""

    def __init__(self, model: Model, cluster: Cluster) -> None:
        self._model, self._cluster = model, cluster
        self._size = model.batch_size
        self._workers = cluster.start_workers(_Worker, model)
        self.name, self.identity = model.name, model.identity
        self.batch_size = self._size * _BATCHES_PER_WORKER * len(self._workers)

    def read(
        self, items: Sequence[Any], is_known: Callable[[bytes], bool]
    ) -> list[Readable | Unreadable]:
        return self._model.read(items, is_known)

    def vectors(self, inputs: Sequence[Any]) -> NDArray[np.float32]:
        batches = [inputs[i : i + self._size] for i in range(0, len(inputs), self._size)]
        sent = [
            self._workers[place % len(self._workers)].vectors.remote(batch)
            for place, batch in enumerate(batches)
        ]
        return np.concatenate([self._cluster.get(reference) for reference in sent])


class _Worker:
    """One copy of the model, which it loads when the first batch arrives."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def vectors(self, inputs: Sequence[Any]) -> NDArray[np.float32]:
        return self._model.vectors(inputs)

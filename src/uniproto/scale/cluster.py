"""Ray: connecting to a cluster, starting a local one, and running tasks with retries."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import (
    InfeasibleError,
    InvalidInputError,
    UniprotoError,
    needing,
    require_int,
)
from uniproto.features.embedded import Model, ReadItem
from uniproto.runtime.memory import readable
from uniproto.runtime.threads import one_thread
from uniproto.version import __version__

_SECONDS_TO_ANSWER = 10.0
_RETRIES = 5  # of a task whose worker or node dies
_SHARE_OF_STORE = 0.5  # of a node's object store that one object may take


class ClusterError(UniprotoError, ConnectionError):
    """Ray cannot be reached, or a task was lost."""


class Cluster:
    """A Ray cluster. As a context manager, it stops Ray only if it started it.

    Without `address` and `num_cpus`: the cluster that this process is connected to, the one that
    RAY_ADDRESS names, or a local one with all cores.
    """

    def __init__(self, address: str | None = None, num_cpus: int | None = None) -> None:
        if num_cpus is not None:
            require_int("num_cpus", num_cpus)
            if address is not None:
                raise InvalidInputError(
                    "is for a local Ray, without an 'address'.", parameter="num_cpus"
                )
        self.address, self.num_cpus = address, num_cpus
        self._ray: Any = None
        self._ours = False
        self._tasks: dict[Any, Any] = {}  # remote functions

    def __enter__(self) -> Cluster:
        self._ray = _import_ray()
        if self._ray.is_initialized():
            if self.num_cpus is not None or self.address is not None:
                name = "num_cpus" if self.address is None else "address"
                raise InvalidInputError(
                    f"This process is connected to Ray already. Drop {name!r}, or call "
                    "ray.shutdown() first."
                )
            return self
        address = self.address or (None if self.num_cpus else os.environ.get("RAY_ADDRESS"))
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None or address == "local":
            self._ray.init(
                address="local", num_cpus=self.num_cpus, include_dashboard=False, **quiet
            )
        else:
            _require_answer(address)
            try:
                self._ray.init(address=address, **quiet)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise _no_answer(address, str(error)) from error
        self._ours = True
        return self

    def __exit__(self, *_: Any) -> None:
        if self._ours:
            self._ray.shutdown()
            self._ours = False

    @property
    def workers(self) -> int:
        """The number of tasks that run in parallel."""
        return int(self._ray.cluster_resources().get("CPU", 1))

    def require_room(self, size: int, what: str, remedy: str) -> None:
        """Refuse an object that takes too much of a node's object store."""
        stores = [
            node["Resources"].get("object_store_memory", 0.0)
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        allowed = int(_SHARE_OF_STORE * min(stores, default=0.0))
        if size > allowed:
            raise InfeasibleError(
                f"{what} must fit in half of every node's object store, {readable(allowed)}. It "
                f"takes {readable(size)}. {remedy}"
            )

    @property
    def gpus(self) -> int:
        """The number of GPUs in the cluster."""
        return int(self._ray.cluster_resources().get("GPU", 0))

    def submit(self, function: Callable[..., Any], *arguments: Any, on_gpus: bool = False) -> Any:
        """Start a task on one core, and on a GPU of its own if any node has one."""
        taken = 1 if on_gpus and self.gpus else 0
        if (function, taken) not in self._tasks:
            options = {"num_cpus": 1, "num_gpus": taken, "max_retries": _RETRIES}
            self._tasks[function, taken] = self._ray.remote(**options)(_on_one_core(function))
        return self._tasks[function, taken].remote(*arguments)

    def start_workers(self, worker: type[Any], *arguments: Any) -> list[Any]:
        """One worker on every GPU, or on every core if there is none; Ray restarts killed ones.

        The arguments must be small: Ray passes those by value, while objects in the store may be
        gone when a worker is restarted.
        """
        each = {"num_gpus": 1} if self.gpus else {"num_cpus": 1}
        remote = self._ray.remote(**each, max_restarts=-1, max_task_retries=_RETRIES)(worker)
        return [remote.remote(*arguments) for _ in range(self.gpus or self.workers)]

    def put(self, value: Any) -> Any:
        """Put a value into the object store, for every task to read."""
        return self._ray.put(value)

    def get(self, reference: Any) -> Any:
        """A task's result; its error is raised as if it had run here."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, UniprotoError):
                raise cause from None
            if "failed to import on the worker" in str(cause):
                raise ClusterError(
                    f"Every node must have uniproto {__version__}, as the driver has. Install it "
                    "with the extra 'ray' on every node."
                ) from error
            raise
        except self._ray.exceptions.RayError as error:
            raise ClusterError(
                f"A task was lost {_RETRIES + 1} times ({str(error).strip().splitlines()[0]}). "
                "Give tasks more memory, or use smaller shards; the same command continues with "
                "the finished parts."
            ) from error

    def as_finished(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[Any, ...]],
        *,
        on_gpus: bool = False,
    ) -> Iterator[tuple[int, Any]]:
        """Run a function once per tuple of arguments; yields (place, result) as each ends."""
        places = {
            self.submit(function, *task, on_gpus=on_gpus): place for place, task in enumerate(tasks)
        }
        waiting = list(places)
        try:
            while waiting:
                done, waiting = self._ray.wait(waiting, num_returns=1)
                result = self.get(done[0])
                place = places.pop(done[0])  # releases the result
                del done
                yield place, result
        finally:
            for reference in waiting:  # after an error, or Ctrl-C
                self._ray.cancel(reference, force=True)

    def all(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The results of a function for each tuple of arguments, in their order."""
        found = dict(self.as_finished(function, tasks))
        return [found[place] for place in range(len(tasks))]


def _on_one_core(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def task(*arguments: Any) -> Any:
        with one_thread():
            return function(*arguments)

    return task


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is imported
    with needing("Selecting on Ray", "ray"):
        import ray
    return ray


def _require_answer(address: str) -> None:
    """Fail early if nothing answers: Ray would retry for minutes and then exit the process."""
    if address == "auto":
        return  # Ray fails at once if there is no local cluster
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInputError(
            "must be auto, HOST:PORT or ray://HOST:PORT, as 'ray start' prints it, not "
            f"{address!r}.",
            parameter="address",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _no_answer(address, str(error)) from error


def _no_answer(address: str, reason: str) -> ClusterError:
    first = reason.strip().splitlines()[0] if reason.strip() else "no reason given"
    return ClusterError(
        f"'address' must be that of a running Ray. Got {address!r} instead, which does not answer "
        f"({first}). Start one with 'ray start --head', or leave --address out and use --num-cpus "
        "to run on this machine."
    )


_BATCHES_PER_WORKER = 4  # sent at once, to keep workers busy


def on_ray(cluster: Cluster) -> Callable[[Model], Model]:
    """The argument `spread` of `embed_text`, `embed_images`, `gradients` and `hidden_states`.

    Every node must find the model under the same name: in a shared folder, or from the hub.
    """
    return lambda model: ModelOnRay(model, cluster)


class ModelOnRay:
    """A model whose batches are computed by workers in the cluster."""

    def __init__(self, model: Model, cluster: Cluster) -> None:
        self._model, self._cluster = model, cluster
        self._size = model.batch_size
        self._workers = cluster.start_workers(_Worker, model)
        self.name, self.identity = model.name, model.identity
        self.batch_size = self._size * _BATCHES_PER_WORKER * len(self._workers)

    def read(self, items: Sequence[Any], is_known: Callable[[bytes], bool]) -> list[ReadItem]:
        return self._model.read(items, is_known)

    def vectors(self, inputs: Sequence[Any]) -> NDArray[np.float32]:
        batches = [inputs[i : i + self._size] for i in range(0, len(inputs), self._size)]
        sent = [
            self._workers[place % len(self._workers)].vectors.remote(batch)
            for place, batch in enumerate(batches)
        ]
        return np.concatenate([self._cluster.get(reference) for reference in sent])


class _Worker:
    """One copy of the model, loaded on the first batch."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def vectors(self, inputs: Sequence[Any]) -> NDArray[np.float32]:
        return self._model.vectors(inputs)

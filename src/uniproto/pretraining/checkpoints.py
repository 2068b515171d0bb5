"""Checkpoints of a pretraining run, with Orbax: the last two, each complete or not there.

Beside the arrays of the training state a checkpoint holds a record: the configuration it belongs
to, and what the run has to know to write the same metrics as if it had never stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, MissingExtraError, OutputError

try:
    import jax
    import orbax.checkpoint as ocp
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Pretraining", "jax") from error

CHECKPOINTS = "checkpoints"
_KEPT = 2


class Checkpoints:
    """The checkpoints of the run in a folder.

    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()))
    >>> checkpoints.save(3, {"weights": jnp.ones(2)}, {"configuration": {"size": "tiny"}})
    >>> checkpoints.record()["step"], checkpoints.restore({"weights": jnp.zeros(2)})
    (3, {'weights': Array([1., 1.], dtype=float32)})
    >>> checkpoints.close()
    """

    def __init__(self, out: Path) -> None:
        self.folder = out / CHECKPOINTS
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._manager = ocp.CheckpointManager(
                self.folder.resolve(),  # Orbax takes absolute paths only
                options=ocp.CheckpointManagerOptions(
                    max_to_keep=_KEPT, enable_async_checkpointing=False
                ),
            )
        except OSError as error:
            raise self._unwritable(error) from error

    def record(self) -> dict[str, Any] | None:
        """The record of the last checkpoint with its `step`, or None where there is none."""
        step = self._manager.latest_step()
        if step is None:
            return None
        try:
            found = self._manager.restore(step, args=ocp.args.Composite(run=ocp.args.JsonRestore()))
            return {**found["run"], "step": step}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(step, error) from error

    def save(self, step: int, state: Any, record: Mapping[str, Any]) -> None:
        """Keep the state after this many steps; the oldest of three goes."""
        content = ocp.args.Composite(
            state=ocp.args.StandardSave(_named(state)), run=ocp.args.JsonSave(dict(record))
        )
        try:
            with _told_once():
                self._manager.save(step, args=content)
        except (OSError, ValueError) as error:  # a full disk is a ValueError to its storage
            raise self._unwritable(error) from error

    def restore(self, like: Any) -> Any:
        """The state of the last checkpoint, as a tree of the form and on the devices of `like`."""
        step = self._manager.latest_step()
        abstract = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
            for name, leaf in _named(like).items()
        }
        try:
            found = self._manager.restore(
                step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
            )["state"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(step, error) from error
        leaves, form = jax.tree.flatten(like)
        values = [
            jax.random.wrap_key_data(found[name], impl=jax.random.key_impl(leaf))
            if _is_key(leaf)
            else found[name]
            for name, leaf in zip(_named(like), leaves, strict=True)
        ]
        return jax.tree.unflatten(form, values)

    def close(self) -> None:
        self._manager.close()

    def _damaged(self, step: int | None, error: Exception) -> InputFileError:
        reason = str(error).strip().split("\n")[0]
        return InputFileError(
            f"{self.folder / str(step)}: the checkpoint must be complete, and of this version. It "
            f"could not be read ({reason}). Delete it to go on from the one before, or start over "
            "with --fresh."
        )

    def _unwritable(self, error: OSError | ValueError) -> OutputError:
        last = str(error).strip().rsplit(": ", 1)[-1]  # of what each layer of storage says
        reason = getattr(error, "strerror", None) or last.partition(" [")[0]
        return OutputError(
            f"{self.folder}: the checkpoints must go to a folder that can be written. Writing "
            f"failed ({reason}). Choose another folder with --out, or free some space."
        )


@contextmanager
def _told_once() -> Iterator[None]:
    """Keep the threads of Orbax from printing a traceback of what they raise here too."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _named(state: Any) -> dict[str, Any]:
    """The arrays of a tree by their path in it; random keys as plain numbers."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {
        jax.tree_util.keystr(path): jax.random.key_data(leaf) if _is_key(leaf) else leaf
        for path, leaf in leaves
    }


def _is_key(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))

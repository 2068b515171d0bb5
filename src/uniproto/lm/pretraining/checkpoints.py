"""Checkpoints of a pretraining run, with Orbax. The last two are kept; each is written atomically.

The state is a tree of dictionaries of arrays, named as in the code (`params/layers/qkv`), which can
be read with Orbax alone. A checkpoint also holds a record: the configuration of the run, and what
is needed to continue its metrics.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from uniproto.data.files import first_line
from uniproto.errors import InputFileError, OutputError
from uniproto.runs.atomic import unwritable

CHECKPOINTS = "checkpoints"
_STATE, _RECORD = "state", "run"
_KEPT = 2


@dataclass(frozen=True)
class TrainingCheckpoint:
    """A checkpoint and the record of its run."""

    folder: Path
    step: int
    record: dict[str, Any]


class Checkpoints:
    """The checkpoints of the run in a folder.

    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()))
    >>> checkpoints.save(3, {"weights": jnp.ones(2)}, {"configuration": {"size": "tiny"}})
    >>> last = checkpoints.latest()
    >>> last.step, checkpoints.restore(last, {"weights": jnp.zeros(2)})
    (3, {'weights': Array([1., 1.], dtype=float32)})
    >>> checkpoints.close()
    """

    def __init__(self, out: Path) -> None:
        self.folder = out / CHECKPOINTS
        options = ocp.CheckpointManagerOptions(max_to_keep=_KEPT, enable_async_checkpointing=False)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_partial()
            self._manager = ocp.CheckpointManager(
                self.folder.resolve(), options=options, item_names=(_STATE, _RECORD)
            )
        except OSError as error:
            raise self._unwritable(error) from error

    def latest(self) -> TrainingCheckpoint | None:
        """The last checkpoint, or None where there is none."""
        step = self._manager.latest_step()
        if step is None:
            return None
        folder = self.folder / str(step)
        with _reading(folder):
            args = ocp.args.Composite(**{_RECORD: ocp.args.JsonRestore()})
            record = dict(self._manager.restore(step, args=args)[_RECORD])
        return TrainingCheckpoint(folder, step, record)

    def save(self, step: int, state: Any, record: Mapping[str, Any]) -> None:
        """Save the state after this many steps, and remove all but it and the one before it."""
        parts = {
            _STATE: ocp.args.StandardSave(plain_tree(state)),
            _RECORD: ocp.args.JsonSave(dict(record)),
        }
        try:
            with _silent_threads():
                self._manager.save(step, args=ocp.args.Composite(**parts), force=True)
        except (OSError, ValueError) as error:  # Orbax raises ValueError on a full disk
            self._remove_partial()
            raise self._unwritable(error) from error

    def restore(self, checkpoint: TrainingCheckpoint, like: Any) -> Any:
        """The state of a checkpoint, as a tree of the form and on the devices of `like`."""
        abstract = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding),
            plain_tree(like),
        )
        with _reading(checkpoint.folder):
            args = ocp.args.Composite(**{_STATE: ocp.args.StandardRestore(abstract)})
            found = self._manager.restore(checkpoint.step, args=args)[_STATE]
            arrays = _named_parts(found)
        ordered = [arrays[name] for name in _named_parts(like)]
        return jax.tree.unflatten(jax.tree.structure(like), ordered)

    def close(self) -> None:
        self._manager.close()

    def _remove_partial(self) -> None:
        """Remove what a failed or killed run saved in part."""
        for path in self.folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(path, ignore_errors=True)

    def _unwritable(self, error: OSError | ValueError) -> OutputError:
        last = str(error).strip().rsplit(": ", 1)[-1]  # each storage layer adds a prefix
        reason = getattr(error, "strerror", None) or last.partition(" [")[0]
        return unwritable(self.folder, ValueError(reason), "the checkpoints")


def remove_checkpoints(out: Path) -> None:
    """Remove the checkpoints of a run, and their folder unless it holds other things."""
    folder = out / CHECKPOINTS
    for path in folder.iterdir() if folder.is_dir() else ():
        if (path / _STATE).is_dir() or (path / _RECORD).is_dir():
            shutil.rmtree(path)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn any error of reading a checkpoint into one message."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(
            f"{folder}: the checkpoint could not be read ({first_line(error)}). Move this folder "
            "away to go on from the checkpoint before it, or start over with --fresh."
        ) from error


@contextmanager
def _silent_threads() -> Iterator[None]:
    """Keep the threads of Orbax from printing a traceback of an error that is raised here too."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def plain_tree(state: Any) -> dict[str, Any]:
    """A state as dictionaries of arrays, by the names of its parts.

    >>> from uniproto.lm.pretraining.step import TrainState
    >>> nothing = jax.numpy.zeros(())
    >>> plain_tree(TrainState({"head": nothing}, (nothing,), nothing, nothing)).keys()
    dict_keys(['params', 'optimizer', 'step', 'key'])
    """
    tree: dict[str, Any] = {}
    for name, leaf in _named_parts(state).items():
        *folders, last = name.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = leaf
    return tree


def _named_parts(tree: Any) -> dict[str, Any]:
    """Each array by the keys, names or places on the way to it: `params/layers/qkv`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}

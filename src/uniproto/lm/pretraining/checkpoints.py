"""Checkpoints of a pretraining run, with Orbax: the last two, each complete or not there.

The state is a plain tree: dictionaries of arrays, named as in the code (`params/layers/qkv`), which
any program reads with Orbax alone. Besides them a checkpoint holds a record (`run.json`): the
configuration it belongs to, and what the run needs to write the same metrics as if it had never
stopped. `checksums.json` lists size and SHA-256 of every other file. A checkpoint is restored only
where all of them agree: Orbax itself does not notice most flipped bits.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, MissingExtraError, OutputError
from uniproto.runs.atomic import write_json
from uniproto.runs.records import sha256_of

try:
    import jax
    import orbax.checkpoint as ocp
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Pretraining", "jax") from error

CHECKPOINTS = "checkpoints"
_STATE, _RECORD, _CHECKSUMS = "state", "run.json", "checksums.json"
_NAME, _PARTIAL_NAME = re.compile(r"[0-9]+"), re.compile(r"\.[0-9]+\.partial")
_HASHED_AT_ONCE = 4  # files


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files have been verified."""

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
        self._files = ocp.Checkpointer(ocp.StandardCheckpointHandler())
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def steps(self) -> list[int]:
        """After how many steps there are checkpoints, verified or not, in rising order."""
        names = [path.name for path in self.folder.iterdir() if _is_checkpoint(path)]
        return sorted(int(name) for name in names if _NAME.fullmatch(name))

    def latest(self) -> Checkpoint | None:
        """The last checkpoint, or None where there is none.

        Where the last one is damaged and the one before it is not, that one, with a message.
        """
        damaged: list[str] = []
        for step in reversed(self.steps()):
            folder = self.folder / str(step)
            damage = _damage(folder)
            if damage is None:
                for each in damaged:
                    print(f"uniproto: {each}; resuming from step {step:,}.", file=sys.stderr)
                return Checkpoint(folder, step, _read_json(folder / _RECORD))
            damaged.append(f"{folder} is damaged ({damage})")
        if damaged:
            raise InputFileError(
                f"{damaged[0]}. A run resumes only from a checkpoint that is as it was written. "
                "Put back a copy of it, or start over with --fresh."
            )
        return None

    def save(self, step: int, state: Any, record: Mapping[str, Any]) -> None:
        """Save the state after this many steps, and remove all but it and the one before it."""
        partial, final = self.folder / f".{step}.partial", self.folder / str(step)
        try:
            _remove_partial(self.folder)  # of a run that was killed
            partial.mkdir()
            with _silent_threads():
                self._files.save(
                    (partial / _STATE).resolve(),  # Orbax takes absolute paths only
                    args=ocp.args.StandardSave(plain_tree(state)),
                )
            write_json(partial / _RECORD, dict(record))
            write_json(partial / _CHECKSUMS, _checksums(partial))
            _remove(final)  # a damaged one: this run has not resumed from it
            partial.rename(final)
            earlier = [each for each in self.steps() if each < step]
            for each in set(self.steps()) - {step, *earlier[-1:]}:
                _remove(self.folder / str(each))
        except (OSError, ValueError) as error:  # a full disk is a ValueError to its storage
            _remove_partial(self.folder)
            raise self._unwritable(error) from error

    def restore(self, checkpoint: Checkpoint, like: Any) -> Any:
        """The state of a checkpoint, as a tree of the form and on the devices of `like`."""
        abstract = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding),
            plain_tree(like),
        )
        try:
            found = self._files.restore(
                (checkpoint.folder / _STATE).resolve(), args=ocp.args.StandardRestore(abstract)
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error).strip().split("\n")[0]
            raise InputFileError(
                f"{checkpoint.folder}: the checkpoint must be one of this version and of a model "
                f"of this shape. It could not be read ({reason}). Start over with --fresh."
            ) from error
        leaves, form = jax.tree_util.tree_flatten_with_path(like)
        values = []
        for path, leaf in leaves:
            value: Any = found
            for key in path:
                value = value[_name(key)]
            if _is_key(leaf):
                value = jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf))
            values.append(value)
        return jax.tree_util.tree_unflatten(form, values)

    def close(self) -> None:
        self._files.close()

    def _unwritable(self, error: OSError | ValueError) -> OutputError:
        last = str(error).strip().rsplit(": ", 1)[-1]  # of the messages of each storage layer
        reason = getattr(error, "strerror", None) or last.partition(" [")[0]
        return OutputError(
            f"{self.folder}: the checkpoints must go to a folder that can be written. Writing "
            f"failed ({reason}). Choose another folder with --out, or free some space."
        )


def _checksums(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file of a checkpoint, except the file that lists them."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    files = {name: path for name, path in sorted(paths.items()) if not path.is_dir()}
    files.pop(_CHECKSUMS, None)
    with ThreadPoolExecutor(_HASHED_AT_ONCE) as pool:  # hashing does not hold Python's lock
        digests = pool.map(sha256_of, files.values())
        return {
            name: {"bytes": path.stat().st_size, "sha256": digest}
            for (name, path), digest in zip(files.items(), digests, strict=True)
        }


def remove_checkpoints(out: Path) -> None:
    """Remove the checkpoints of a run, and their folder unless it holds other things."""
    folder = out / CHECKPOINTS
    if not folder.is_dir():
        return
    _remove_partial(folder)
    for path in folder.iterdir():
        if _NAME.fullmatch(path.name):
            _remove(path)
    if not any(folder.iterdir()):
        folder.rmdir()


def _remove_partial(folder: Path) -> None:
    for path in folder.iterdir():
        if _PARTIAL_NAME.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Remove a checkpoint; a folder that only has the name of one stays."""
    if _is_checkpoint(folder):
        shutil.rmtree(folder)


def _is_checkpoint(folder: Path) -> bool:
    return (folder / _STATE).is_dir() or (folder / _RECORD).is_file()


def _damage(folder: Path) -> str | None:
    """Why a checkpoint must not be restored, or None where every file is as it was written."""
    try:
        expected, found = _read_json(folder / _CHECKSUMS), _checksums(folder)
    except FileNotFoundError:
        return f"it has no {_CHECKSUMS}"
    except (OSError, ValueError) as error:
        return f"it cannot be read: {error}"
    for name in {**expected, **found, _RECORD: None}:
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is not part of it"
        if expected[name] != found[name]:
            return f"{name} is not as it was written"
    return None


def _read_json(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} must hold a JSON object")
    return content


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
    """A state as dictionaries of arrays, by the names of its parts; random keys as numbers.

    >>> from uniproto.lm.pretraining.step import TrainState
    >>> nothing = jax.numpy.zeros(())
    >>> plain_tree(TrainState({"head": nothing}, (nothing,), nothing, nothing)).keys()
    dict_keys(['params', 'optimizer', 'step', 'key'])
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    tree: dict[str, Any] = {}
    for path, leaf in leaves:
        *folders, last = map(_name, path)
        place = tree
        for name in folders:
            place = place.setdefault(name, {})
        place[last] = jax.random.key_data(leaf) if _is_key(leaf) else leaf
    return tree


def _name(key: Any) -> str:
    """What a part is called: its key in a dictionary, its name in a tuple, or its place."""
    for kind in ("key", "name", "idx"):
        if hasattr(key, kind):
            return str(getattr(key, kind))
    raise TypeError(f"a part of a tree without a name: {key!r}")


def _is_key(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))

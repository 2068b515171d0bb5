"""From items to vectors, for items of any kind: windows, cache, batches, skipped rows."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InputFileError, SolverError, asking, require_int, require_name
from uniproto.features.cache import CachedVector, VectorCache, open_cache
from uniproto.features.models import identity_digest
from uniproto.runtime.progress import Advance, Progress

ON_ERROR = ("fail", "skip")
TRUNCATED = 1  # a flag: the text was longer than the model reads
_BATCHES_PER_WINDOW = 16
_NAMED = 3  # bad rows that a message names


@dataclass(frozen=True, eq=False)
class Embedded:
    """The vectors of the rows that could be embedded.

    `vectors[i]` is the vector of row `rows[i]` of the input; `left_out` holds (row, reason) for
    every other row. `model` is the name or path that was given, `model_digest` what the
    vectors depend on (weights, preprocessing), `content_sha256` a digest of what was embedded.
    `notes` say how many vectors were computed, how many came from the cache and how many rows
    repeat the content of one that was computed, how many texts were cut off at the length the model
    reads, and how long it took.
    """

    vectors: NDArray[np.float32]
    rows: NDArray[np.int64]
    left_out: list[tuple[int, str]]
    model: str
    model_digest: str
    content_sha256: str
    notes: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        without = f", {len(self.left_out)} skipped" if self.left_out else ""
        return (
            f"Embedded({len(self):,} vectors of {self.vectors.shape[1]} by {self.model}{without})"
        )


@dataclass(frozen=True)
class ReadItem:
    """An item that was read: the digest of its content and, unless cached, the model's input.

    `reason` says why it has no vector; where that is `expected`, it is skipped and counted,
    whatever is done about errors.
    """

    key: bytes = b""
    model_input: Any = None
    size: int = 0  # inputs of similar size share a batch
    flags: int = 0
    reason: str = ""
    expected: bool = False


class Model(Protocol):
    """Turns items into vectors. Nothing heavy is loaded before a vector must be computed."""

    name: str
    identity: str  # a digest of everything that vectors depend on
    batch_size: int

    def read(self, items: Sequence[Any], is_known: Callable[[bytes], bool]) -> list[ReadItem]:
        """Check items, and make the model's inputs of those without a cached vector."""

    def vectors(self, inputs: Sequence[Any]) -> NDArray[np.float32]:
        """One batch."""


class ModelOfTexts(ABC):
    """The common parts of models of texts and examples: each content is checked and read once."""

    what_is_wrong: Callable[[Any], str | None]  # the reason why an item has no vector
    expected = ""  # such a reason that is not an error
    content: Callable[[Any], bytes]  # the cache key of an item's vector

    @abstractmethod
    def inputs(self, items: list[Any]) -> list[tuple[Any, int, int]]:
        """The model's inputs, with their sizes and flags."""

    def read(self, items: Sequence[Any], is_known: Callable[[bytes], bool]) -> list[ReadItem]:
        found: list[ReadItem] = []
        unknown: dict[bytes, list[int]] = {}
        for place, item in enumerate(items):
            if (reason := self.what_is_wrong(item)) is not None:
                found.append(ReadItem(reason=reason, expected=reason == self.expected))
                continue
            key = hashlib.sha256(self.content(item)).digest()
            found.append(ReadItem(key))
            if key in unknown or not is_known(key):
                unknown.setdefault(key, []).append(place)
        if unknown:
            inputs = self.inputs([items[places[0]] for places in unknown.values()])
            for (key, places), (value, size, flags) in zip(unknown.items(), inputs, strict=True):
                for place in places:
                    found[place] = ReadItem(key, value, size, flags)
        return found


def embed(
    items: Iterable[Any],
    total: int,
    find: Callable[[], Model],
    what: str,
    *,
    check: type[ModelOfTexts] | None = None,
    cache: bool | str | os.PathLike[str] = True,
    on_error: str = "fail",
    progress: bool | None = None,
    spread: Callable[[Model], Model] | None = None,
) -> Embedded:
    """Embed every item that can be read, with the model that `find` finds.

    Where every item must be readable, `check` looks at all of them first: better before a model is
    loaded than after hours.
    """
    require_name("on_error", on_error, ON_ERROR)
    if check is not None and on_error == "fail":
        reasons = enumerate(map(check.what_is_wrong, items))
        wrong = [(row, why) for row, why in reasons if why not in (None, check.expected)]
        if wrong:
            raise unembeddable(wrong, what)
    model = find() if spread is None else spread(find())
    begin = time.perf_counter()
    digest = identity_digest(model.identity)
    rows: list[int] = []
    vectors = np.empty((0, 0), np.float32)
    skipped: list[tuple[int, str]] = []
    content = hashlib.sha256()
    computed: set[bytes] = set()  # later windows find these in the cache, too
    known: dict[bytes, CachedVector] = {}  # of the window, from the cache
    counts, expected = {"computed": 0, "from_cache": 0, "truncated": 0}, 0

    def is_known(key: bytes) -> bool:
        if (vector := stored.find(key)) is not None:
            known[key] = vector
        return vector is not None

    with (
        open_cache(cache, digest) as stored,
        Progress(progress).stage(f"embedding {what}", total) as advance,
    ):
        remaining, batches = enumerate(items), 1  # a short first window shows progress early
        while window := list(itertools.islice(remaining, batches * model.batch_size)):
            batches = min(2 * batches, _BATCHES_PER_WINDOW)
            known.clear()
            found = model.read([item for _, item in window], is_known)
            made, refused = _compute(found, model, stored, advance)
            computed.update(made)
            for (row, _), item in zip(window, found, strict=True):
                content.update(item.key.ljust(32, b"\0"))
                if reason := item.reason or refused.get(item.key):
                    skipped.append((row, reason))
                    expected += item.expected
                    continue
                vector = made[item.key] if item.key in made else known[item.key]
                if not rows:  # one array for all; unfilled parts take no memory
                    vectors = np.empty((max(total, 1), len(vector.vector)), np.float32)
                vectors[len(rows)] = vector.vector
                rows.append(row)
                counts["truncated"] += vector.flags & TRUNCATED
                counts["from_cache"] += item.key not in computed
            counts["computed"] += len(made)
            if on_error == "fail" and len(skipped) > expected:
                raise unembeddable(skipped, what)
            advance(len(window) - len(made))
    if not rows:
        raise _nothing(skipped, what)
    counts["repeated"] = len(rows) - counts["computed"] - counts["from_cache"]
    notes: dict[str, Any] = {**counts, "seconds": time.perf_counter() - begin}
    if stored.note:
        notes["cache"] = stored.note
    return Embedded(
        vectors=vectors[: len(rows)],
        rows=np.array(rows, np.int64),
        left_out=skipped,
        model=model.name,
        model_digest=digest,
        content_sha256=content.hexdigest(),
        notes=notes,
    )


def _compute(
    found: Sequence[ReadItem],
    model: Model,
    stored: VectorCache,
    advance: Advance,
) -> tuple[dict[bytes, CachedVector], dict[bytes, str]]:
    """Vectors of the items that have a model input, each content once, similar sizes together."""
    fresh = {item.key: item for item in found if item.model_input is not None}
    ordered = sorted(fresh.values(), key=lambda item: -item.size)
    made: dict[bytes, CachedVector] = {}
    refused: dict[bytes, str] = {}
    for begin in range(0, len(ordered), model.batch_size):
        batch = ordered[begin : begin + model.batch_size]
        vectors = model.vectors([item.model_input for item in batch])
        usable: NDArray[np.bool_] = np.asarray(
            np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)
        )
        good = {}
        for item, vector, is_usable in zip(batch, vectors, usable, strict=True):
            if is_usable:
                good[item.key] = CachedVector(vector, item.flags)
            else:
                refused[item.key] = "the model gives it no usable vector (zero, or not finite)"
        stored.add(good)
        made |= good
        advance(int(usable.sum()))
    return made, refused


def batch_size_of(batch_size: int | None, default: int) -> int:
    return default if batch_size is None else require_int("batch_size", batch_size)


def checked_vectors(vectors: Any, count: int, name: str) -> NDArray[np.float32]:
    """One vector for each input, in single precision."""
    array = np.ascontiguousarray(vectors, np.float32)
    if array.ndim != 2 or len(array) != count:
        raise SolverError(
            f"{name}: the model must give one vector per item, not an output of shape "
            f"{array.shape} for {count} items. Use a model made for embeddings."
        )
    return array


def in_words(skipped: Sequence[tuple[int, str]], most: int = _NAMED) -> str:
    """The first few rows that were skipped, and how many more.

    >>> in_words([(3, "empty"), (9, "missing")], most=1)
    'row 3 (empty) and 1 more'
    """
    named = ", ".join(f"row {row} ({reason})" for row, reason in skipped[:most])
    more = len(skipped) - most
    return f"{named} and {more:,} more" if more > 0 else named


class UnreadableRowsError(InputFileError):
    """The error for rows that cannot be embedded."""


def unembeddable(skipped: Sequence[tuple[int, str]], what: str) -> UnreadableRowsError:
    """The error if every row was required."""
    return UnreadableRowsError(
        f"Every row must hold {_ONE[what]} that can be read, unlike {in_words(skipped)}. Fix those "
        f"rows, or skip them: {asking('on_error=' + repr('skip'), 'on_error', 'skip')}."
    )


def usable_rows(
    reasons: Sequence[str | None], what: str, where: object, on_error: str, *, expected: str = ""
) -> list[bool]:
    """Which rows can be embedded, by their problems; raises if rows may not be skipped."""
    found = [(row, reason) for row, reason in enumerate(reasons) if reason is not None]
    unexpected = [(row, reason) for row, reason in found if reason != expected]
    if unexpected and on_error == "fail":
        raise InputFileError(f"{where}: {unembeddable(unexpected, what)}")
    if len(found) == len(reasons):
        raise InputFileError(f"{where}: {_nothing(found, what)}")
    return [reason is None for reason in reasons]


def _nothing(skipped: list[tuple[int, str]], what: str) -> UnreadableRowsError:
    got = in_words(skipped) if skipped else "there are no rows"
    return UnreadableRowsError(
        f"No row holds {_ONE[what]} that can be read: {got}. Check the column and the files."
    )


_ONE = {"texts": "a text", "pictures": "a picture", "examples": "an example"}

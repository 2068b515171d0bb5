"""The pictures of a page: each once, the important ones first, all within a budget."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.report.examples import Examples
from uniproto.report.pictures import PictureError, data_uri
from uniproto.report.words import counted, cut
from uniproto.runtime.threads import parallel_map

_PROTOTYPE_BYTES = 3_000_000
_ALL_BYTES = 5_600_000
_EDGES = (256, 192, 144, 112, 88, 64, 48)  # pixels of a prototype, as many as fit
_TARGET_EDGE = 64
_HOVER_SECONDS = 20.0
_BATCH = 64
_NAMED_GAPS = 8


class Album:
    """Data URIs by row. Prototypes come as large as fits; then the targets that cards cite;
    then, while there is room and time, those that the map shows on hovering.
    """

    def __init__(self, source: Examples, target: Examples, same_set: bool) -> None:
        self.source, self.target, self.same_set = source, target, same_set
        self.uris: list[str] = []
        self._size = 0
        self._places: dict[tuple[bool, int], int] = {}
        self._broken: dict[tuple[bool, int], str] = {}
        self._left_out = 0

    def prototypes(self, rows: NDArray[np.int64]) -> None:
        """The pictures of the prototypes, at the largest size at which all of them fit."""
        if self.source.pictures is None or not len(rows):
            return
        first = rows[:: max(1, len(rows) // 24)][:24]
        edge = _EDGES[-1]
        for edge in _EDGES:
            sizes = [len(uri) for _, uri in self._encode(False, first, edge) if uri is not None]
            if not sizes or np.mean(sizes) * len(rows) <= _PROTOTYPE_BYTES:
                break
        for row, uri in self._encode(False, rows, edge):
            self._keep(False, row, uri)

    def targets(self, rows: NDArray[np.intp]) -> None:
        """The pictures of targets that cards show."""
        self._add(rows, np.inf)

    def hovers(self, rows: NDArray[np.intp]) -> None:
        """The pictures of targets on the map."""
        self._add(np.random.default_rng(0).permutation(rows), _HOVER_SECONDS)

    def of_source(self, row: int) -> int | None:
        return self._places.get((False, row))

    def of_target(self, row: int) -> int | None:
        return self._places.get((not self.same_set, row))

    def reason(self, row: int) -> str:
        """Why a prototype has no picture, where it should have one."""
        return self._broken.get((False, row), "")

    def gaps(self) -> list[str]:
        """What is missing, by name."""
        found = []
        if self._broken:
            count = len(self._broken)
            found.append(f"{counted(count, 'picture')} could not be shown:")
            for (of_target, row), why in list(self._broken.items())[:_NAMED_GAPS]:
                found.append(f"{'target' if of_target else 'row'} {row}: {why}")
            if count > _NAMED_GAPS:
                reasons = Counter(why for why in self._broken.values())
                found.append(f"and {count - _NAMED_GAPS:,} more ({len(reasons):,} reasons)")
        if self._left_out:
            found.append(
                f"{counted(self._left_out, 'target')} on the map and in lists are without their "
                "picture, to keep the page small."
            )
        return found

    def _add(self, rows: NDArray[Any], limit: float) -> None:
        if self.target.pictures is None:
            return
        other = not self.same_set
        known = self._places.keys() | self._broken.keys()
        wanted = [int(row) for row in rows if (other, int(row)) not in known]
        begin = time.perf_counter()
        for start in range(0, len(wanted), _BATCH):
            if self._size > _ALL_BYTES or time.perf_counter() - begin > limit:
                self._left_out += len(wanted) - start
                return
            some = np.array(wanted[start : start + _BATCH], np.intp)
            for row, uri in self._encode(other, some, _TARGET_EDGE):
                self._keep(other, row, uri)

    def _encode(
        self, of_target: bool, rows: NDArray[Any], edge: int
    ) -> list[tuple[int, str | None]]:
        examples = self.target if of_target else self.source
        assert examples.pictures is not None
        listed = [int(row) for row in rows]
        pictures = zip(listed, examples.pictures(np.asarray(rows)), strict=True)

        def encode(pair: tuple[int, Any]) -> tuple[int, str | None]:
            row, picture = pair
            try:
                return row, data_uri(picture, edge, examples.white)
            except PictureError as error:
                name = f"{cut(getattr(picture, 'name', ''), 80)}: " if _is_path(picture) else ""
                self._broken[of_target, row] = name + cut(str(error), 160)
                return row, None

        return list(parallel_map(encode, pictures))

    def _keep(self, of_target: bool, row: int, uri: str | None) -> None:
        if uri is not None and (of_target, row) not in self._places:
            self._places[of_target, row] = len(self.uris)
            self.uris.append(uri)
            self._size += len(uri)


def _is_path(picture: Any) -> bool:
    return hasattr(picture, "name") and hasattr(picture, "parts")

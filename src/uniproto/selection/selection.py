"""The result: which rows were chosen, what they cost, and which targets each represents."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.arrays import take_rows
from uniproto.errors import (
    InvalidInputError,
    OutputError,
    UniprotoError,
    as_index,
    require_seconds,
)
from uniproto.methods.contract import Picks
from uniproto.methods.grouped import improve_in_groups
from uniproto.methods.uniproto import memory_of_search
from uniproto.problem.problem import Problem
from uniproto.problem.values import NamedColumns
from uniproto.report import report_selection
from uniproto.report.words import figure
from uniproto.runs.atomic import atomic_write
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import Transport, transport

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from uniproto.certificate.certificate import Certificate
    from uniproto.features.compared_rows import Given
    from uniproto.selection.details import Details
    from uniproto.selection.prototypes import Assignment, Prototype

_FEW_COSTS = 250_000  # k × n up to which random choices to compare with take a moment
_RANDOM_CHOICES = 2


_SHOWN = (
    *("indices", "cost", "weights", "plan", "certificate", "details", "rows", "assign", "nearest"),
    *("to_frame", "to_csv", "summary", "report", "save", "load", "certify", "improve"),
)
_IN_DETAILS = ("gains", "beta", "notes", "timings", "options", "seed", "proof", "preparation")


class Selection:
    """k prototypes in the order picked. Made by `uniproto.select` or `Selection.load`.

    `cost`, `plan` and `group_costs` need an exact transport solve; it runs on first access and
    is remembered.

    >>> import uniproto
    >>> sel = uniproto.select([[1.0, 0.0], [0.8, 0.2], [0.0, 1.0]], k=1)
    >>> sel.indices
    array([1])
    >>> sel.plan.shape
    (1, 3)
    """

    def __init__(
        self,
        *,
        indices: NDArray[np.int64],
        weights: NDArray[np.float64],
        details: Details,
        transport: Transport | None = None,
        group_costs: dict[Hashable, float] | None = None,
        certificate: Certificate | None = None,
        problem: Problem | None = None,
        picks: Picks | None = None,
        given: Given | None = None,
        prototypes: pa.Table | None = None,
        group_rows: Mapping[Hashable, NDArray[np.int64]] | None = None,
    ) -> None:
        from uniproto.features.compared_rows import Given

        self.indices = indices
        self.weights = weights
        self.certificate = certificate  # None until certified
        self._problem = problem
        self._picks = picks
        self.given = (given or Given()) if problem is None else problem.given
        self.details = replace(details, preparation=self.given.preparation)
        self.shape, self.method = details.shape, details.method
        self.metric, self.bandwidth = details.metric, details.bandwidth
        self.prototypes = prototypes  # the chosen rows of a table, where the result was loaded
        self._group_rows = dict(group_rows or {})
        if transport is not None:
            self.__dict__["_transport"] = transport
        if group_costs is not None:
            self.__dict__["group_costs"] = group_costs

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say where names of earlier versions are now.

            >>> import uniproto
            >>> uniproto.select([[0.0], [1.0]], k=1).gains
            Traceback (most recent call last):
            AttributeError: selection.gains is now selection.details.gains.
            """
            unknown = f"'Selection' object has no attribute {name!r}"
            moved = f"selection.{name} is now selection.details.{name}."
            raise AttributeError(moved if name in _IN_DETAILS else unknown)

    @property
    def k(self) -> int:
        """How many prototypes there are."""
        return len(self.indices)

    @property
    def cost(self) -> float:
        """Optimal-transport cost between the prototypes, with equal weights, and the target."""
        return self._transport.cost

    @property
    def plan(self) -> sp.csr_array:
        """Sparse (k, n): which targets each prototype represents, as shares of all mass."""
        return self._transport.plan

    @property
    def cost_is_exact(self) -> bool:
        """False where no exact solve fitted and `cost` is an upper bound."""
        return self._transport.is_exact

    @cached_property
    def group_costs(self) -> dict[Hashable, float]:
        """Each group's own cost: its prototypes against its target rows. Empty without groups."""
        if self._problem is None:
            return {}
        return {
            group.label: transport(group.problem, self._group_rows[group.label]).cost
            for group in self._problem.groups
        }

    @cached_property
    def _transport(self) -> Transport:
        assert self._problem is not None  # else the transport was given by `load`
        assert self._picks is not None
        if self._picks.transport is not None:
            return self._picks.transport
        begin = time.perf_counter()
        solved = transport(self._problem, self.indices, self._picks.plan)
        self.details.timings["plan"] = time.perf_counter() - begin
        return solved

    def certify(
        self, *, time_limit: float | None = None, progress: bool | None = None
    ) -> Certificate:
        """Bound how much better any other k prototypes could be; sets `certificate`.

        Takes the constraints of the selection (`exclude`, `initial`, groups) into account. Stops
        when the bound no longer rises, or after `time_limit` seconds; a look at every row, without
        which there is no bound, may take as long again.
        """
        if time_limit is not None:
            time_limit = require_seconds("time_limit", time_limit, "None or ")
        if self._problem is None:
            raise InvalidInputError(
                "A loaded selection no longer holds the data. Run: uniproto certify FOLDER; or "
                "certify a result of Python before it is saved."
            )
        from uniproto.certificate.ascent import certify

        prices = self._transport.prices
        self.certificate = certify(
            self._problem,
            self.cost,
            np.zeros(self.shape[1]) if prices is None else prices,
            rows=self.indices,
            plan=self.plan,
            proven=self.details.proven,
            time_limit=time_limit,
            progress=Progress(progress),
        )
        self.details.timings["certificate"] = self.certificate.seconds
        return self.certificate

    def improve(self, seconds: float, *, progress: bool | None = None) -> Selection:
        """Swap rows for better ones for at most so many seconds; the cost never rises.

        Works on the selection of any method, and returns a new one whose rows all count equally.
        Ends early where no single swap lowers the cost. With groups rows are swapped inside each.

        >>> import uniproto
        >>> random = uniproto.select([[0.0], [1.0], [5.0], [6.0], [7.0]], k=1, method="random",
        ...                          metric="euclidean")
        >>> random.improve(seconds=1).indices
        array([2])
        """
        seconds = require_seconds("seconds", seconds)
        if self._problem is None:
            raise InvalidInputError(
                "A loaded selection no longer holds the data. Select again, with seconds=…."
            )
        from uniproto.methods.multilevel.search import go_on

        problem, details, shown = self._problem, self.details, Progress(progress)
        needed = memory_of_search(problem)
        held = f"exchanges hold {self.k:,} × {problem.n:,} costs"
        require_memory(needed, problem.memory, held, f"Allow at least memory={needed}.")
        begin = time.perf_counter()
        group_rows: Any = None
        if problem.groups:
            picks, group_rows = improve_in_groups(problem, self._group_rows, seconds, shown)
        else:
            picks = go_on(problem, self.indices.astype(np.intp), seconds, shown)
        replaced = len(np.setdiff1d(picks.rows, self.indices))
        kept = {
            name: note for name, note in details.notes.items() if name != "proof" or not replaced
        }
        did = {"improved": {"seconds": seconds, "replaced": replaced}}
        return Selection(
            indices=picks.rows.astype(np.int64),
            weights=np.full(self.k, 1 / self.k),
            details=replace(
                details,
                gains=picks.gains,
                timings={**details.timings, "improve": time.perf_counter() - begin},
                notes={**kept, **picks.notes, **did},
            ),
            problem=problem,
            picks=picks,
            group_rows=group_rows,
        )

    def rows(self, source: Any = None) -> Any:
        """The chosen rows of the source, in the order picked, whatever index it has.

        Pass the table, array or list that was selected from (or one with the same rows and other
        columns); the result is of the same kind. Without it: the rows as `select` was given them.

        >>> import uniproto
        >>> sel = uniproto.select([[1.0, 0.0], [0.8, 0.2], [0.0, 1.0]], k=1)
        >>> sel.rows(["first", "second", "third"])
        ['second']
        """
        if source is None:
            source = self.given.source
            if source is None and self.prototypes is not None:
                return self.prototypes
        count = getattr(source, "shape", [None])[0] if source is not None else None
        count = len(source) if count is None and hasattr(source, "__len__") else count
        if count != self.shape[0]:
            raise InvalidInputError(
                f"'source' must have the {self.shape[0]:,} rows that were selected from. Pass the "
                "table as it was, before or after other columns were added."
            )
        return take_rows(source, self.indices)

    def assign(self, *rows: Any) -> Assignment:
        """Which prototype represents each target (a position in `indices`), and how far it is.

        By the plan, in which all prototypes have equal weight: a target near a crowded prototype
        may go to the next. `nearest` is for other rows. A loaded selection no longer holds the
        data: its distances are NaN.

        >>> import uniproto
        >>> sel = uniproto.select([[0.0], [1.0], [5.0], [6.0]], k=2)
        >>> sel.assign().prototype
        array([0, 0, 1, 1])
        """
        if rows:
            raise InvalidInputError(
                "assign() is about the targets and takes no rows. Call nearest(rows)."
            )
        from uniproto.selection.prototypes import assigned_targets

        return assigned_targets(self, self._problem)

    def nearest(self, rows: Any) -> Assignment:
        """The nearest prototype of each new row (a position in `indices`), and how far it is.

        A table is prepared as the selected one was. Unlike `assign`, every row counts alone, also
        those of the target.

        >>> import uniproto
        >>> sel = uniproto.select([[0.0], [1.0], [5.0], [6.0]], k=2)
        >>> sel.nearest([[0.5], [7.0]]).prototype
        array([0, 1])
        """
        from uniproto.selection.prototypes import nearest_of

        return nearest_of(self, self._problem, rows)

    def __dir__(self) -> list[str]:
        """What people look for first; the rest is in `details`."""
        return sorted(_SHOWN)

    def to_frame(self) -> pd.DataFrame:
        """A pandas table: row number, rank, how many targets it represents, its own values."""
        from uniproto.selection.prototypes import prototype_table

        try:
            import pandas  # noqa: F401
        except ImportError:
            raise UniprotoError(
                "to_frame() needs pandas: pip install pandas. Or call to_csv()."
            ) from None
        return prototype_table(self).to_pandas()

    def to_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write a CSV file with a line per prototype, like `to_frame`; returns its path."""
        from uniproto.selection.prototypes import prototype_table, write_csv

        table = prototype_table(self)
        try:
            with atomic_write(Path(path)) as file:
                write_csv(table, file)
        except OSError as error:  # which names a temporary file beside the one that was asked for
            raise OutputError(
                f"{path}: could not be written ({error.strerror or error}). Make the folder first."
            ) from error
        return Path(path)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write selection.parquet, plan.npz and manifest.json; returns the folder.

        With a certificate, also certificate.npz.
        """
        from uniproto.selection.storage import save_selection

        return save_selection(self, Path(folder))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Selection:
        """Read what `save` or the command line wrote."""
        from uniproto.selection.storage import damaged, read_fields, require_sums

        selection = cls(**read_fields(Path(folder)))
        try:
            require_sums(selection)
        except (ValueError, TypeError) as error:
            raise damaged(Path(folder), error) from error
        return selection

    def renumbered(
        self,
        rows: NDArray[np.integer[Any]],
        targets: NDArray[np.integer[Any]] | None,
        shape: tuple[int, int],
    ) -> Selection:
        """The same selection with other numbers: `rows[i]` for row i, `targets[j]` for target j.

        A target that no number leads to has an empty column in the plan and the price 0; one whose
        number is -1 goes. The result no longer holds the data, like one that was loaded.
        """
        other = copy(self)
        other.indices, other.shape = rows[self.indices].astype(np.int64), shape
        other.details = replace(self.details, shape=shape, preparation=None)
        other.__dict__ |= {"group_costs": self.group_costs, "_transport": self._transport}
        other._problem = other._picks = other.prototypes = None
        other.given = replace(self.given, source=None, target=None, columns=(), preparation=None)
        if targets is not None:
            kept = np.flatnonzero(targets >= 0)
            places = (np.ones(len(kept)), (kept, targets[kept]))
            numbers = sp.csr_array(places, (len(targets), shape[1]))
            plan = sp.csr_array(self.plan @ numbers)
            other.__dict__["_transport"] = Transport(self.cost, plan, self.cost_is_exact)
            if self.certificate is not None:
                prices = self.certificate.prices @ numbers
                other.certificate = replace(self.certificate, prices=prices)
        return other

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        labels: Any = None,
        text: Any = None,
        images: Any = None,
        ids: Any = None,
        groups: Any = None,
        positions: Any = None,
        title: str | None = None,
        random: int | None = None,
    ) -> Path:
        """Write one self-contained HTML page about this selection; returns its path.

        What is said about rows is one value per source row, or a pair of such: of the source's rows
        and of the target's, where the target is another set. Of a table, labels, text, ids and
        groups may be the name of a column.

        Args:
            path: the file to write.
            labels: one class per source row, for coverage and filters.
            text: one text per source row. Cards show it.
            images: one picture per source row: an array (rows, height, width[, channels]), paths,
                file contents, Pillow images, or a folder. Cards show it.
            ids: one name per source row.
            groups: one group per source row. Default: the groups selected by.
            positions: two coordinates per source row, for the map. Default: principal components.
            title: what the page is about.
            random: how many random choices to compare with. Default: 5, as far as half a minute
                allows.
        """
        named = NamedColumns(self.given.source, self.given.target)
        said = {"labels": labels, "text": text, "ids": ids, "groups": groups}
        pairs = {name: named.both(values, name) for name, values in said.items()}
        for name, values in (("images", images), ("positions", positions)):
            is_pair = isinstance(values, tuple) and len(values) == 2
            pairs[name] = values if is_pair else (values, None)
        return report_selection(self, path, self._problem, pairs, title=title, random=random)

    def summary(self) -> str:
        """A few lines for people."""
        from uniproto.selection.words import summary

        return summary(self, self._problem)

    def in_words(self) -> str:
        """What the cost means, beside that of random rows where finding it takes a moment.

        >>> import uniproto
        >>> points = [[0.0], [1.0], [5.0], [6.0]]
        >>> words = uniproto.select(points, k=2, metric="euclidean").in_words()
        >>> words[:58]
        'a typical row is 0 from its prototype, the mean is 0.500; '
        """
        from uniproto.selection.words import distance_in_words

        words = distance_in_words(self, self._problem)
        if self.method != "random" and self._random_cost is not None:
            words += f"; with random ones {figure(self._random_cost, 3)}"
        if self.details.proof is not None:
            words += "; none are closer (proven)"
        return words

    @cached_property
    def _random_cost(self) -> float | None:
        """The mean cost of a few random choices, unless there are too many costs to look at."""
        from uniproto.report.verdict import random_costs

        if self.k * self.shape[1] > _FEW_COSTS:
            return None
        costs, _ = random_costs(self, self._problem, _RANDOM_CHOICES, None)
        return float(np.mean(costs)) if costs else None

    def __len__(self) -> int:
        return self.k

    def __getitem__(self, place: int | slice) -> Any:
        """The prototype at a place of the picks, from 0, or a list of those in a slice.

        >>> import uniproto
        >>> first = uniproto.select([[0.0], [1.0], [5.0], [6.0]], k=2, metric="euclidean")[0]
        >>> first.rank, first.index, first.targets
        (1, 0, array([0, 1]))
        """
        if isinstance(place, slice):
            return [self[number] for number in range(self.k)[place]]
        number = as_index(place)
        if not -self.k <= number < self.k:
            raise IndexError(f"{number} is no place of {self.k} prototypes")
        from uniproto.selection.prototypes import prototype

        return prototype(self, number % self.k)

    def __iter__(self) -> Iterator[Prototype]:
        return (self[place] for place in range(self.k))

    def _repr_html_(self) -> str:
        """A card for notebooks: the verdict, the map and the first prototypes."""
        from uniproto.report.page import card
        from uniproto.selection.prototypes import prototype_table

        return card(self, self._problem, prototype_table(self))

    def __repr__(self) -> str:
        known = "_transport" in self.__dict__  # what is printed computes nothing
        cost = f", cost={self.cost:.6g}" if known else ""
        m, n = self.shape
        first = ", ".join(map(str, self.indices[:6].tolist()))
        more = ", …" if self.k > 6 else ""
        return f"Selection(k={self.k} of {m} for {n} targets, {self.method}{cost}, [{first}{more}])"

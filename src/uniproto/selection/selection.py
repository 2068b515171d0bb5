"""The result: which rows were chosen, what they cost, and which targets each represents."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.arrays import take_rows
from uniproto.data.columns import as_frame
from uniproto.errors import (
    ChangedInputError,
    InvalidInputError,
    as_index,
    require_seconds,
)
from uniproto.methods.contract import Picks
from uniproto.methods.grouped import improve_in_groups
from uniproto.problem.problem import Problem, ProblemOptions, Unpack, as_problem
from uniproto.report import write_report
from uniproto.report.targets import arc_costs
from uniproto.runs.atomic import atomic_write, writing
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import Transport, transport

if TYPE_CHECKING:
    import pandas as pd

    from uniproto.certificate.certificate import Certificate
    from uniproto.selection.details import Details
    from uniproto.selection.drift import Drift
    from uniproto.selection.prototypes import Assignment, Prototype

_SAME_COST = 1e-9  # how far rounding may put a cost off, as a share of it
_FEW_COSTS = 250_000  # k × n up to which random choices to compare with take a moment


def as_time_limit(certify: Any) -> tuple[bool, float | None]:
    """Whether `certify` asks for a certificate, and for how many seconds at most.

    >>> as_time_limit(False), as_time_limit(True), as_time_limit(30)
    ((False, None), (True, None), (True, 30.0))
    """
    if isinstance(certify, bool | np.bool_):
        return bool(certify), None
    return True, require_seconds("certify", certify, "True, False or ")


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
        group_rows: Mapping[Hashable, NDArray[np.int64]] | None = None,
    ) -> None:
        self.indices = indices
        self.weights = weights
        self.certificate = certificate  # None until certified
        self._problem = problem
        self._picks = picks
        self.details = details
        self._group_rows = dict(group_rows or {})
        if transport is not None:
            self.__dict__["_transport"] = transport
        if group_costs is not None:
            self.__dict__["group_costs"] = group_costs

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
        assert self._problem is not None  # otherwise `load` has set the transport
        assert self._picks is not None
        if self._picks.transport is not None:
            return self._picks.transport
        begin = time.perf_counter()
        solved = transport(self._problem, self.indices, self._picks.plan)
        self.details.timings["plan"] = time.perf_counter() - begin
        return solved

    def certify(self, seconds: float | None = None, *, progress: bool | None = None) -> Certificate:
        """Bound how much better any other k prototypes could be; sets `certificate`.

        Takes the constraints of the selection (`exclude`, `include`, groups) into account. Stops
        when the bound no longer rises, or after `seconds`; a look at every row, without
        which there is no bound, may take as long again.
        """
        if seconds is not None:
            seconds = require_seconds("seconds", seconds, "None or ")
        from uniproto.certificate.ascent import certify

        problem = self._with_problem(", or run: uniproto certify FOLDER")
        prices = self._transport.prices
        self.certificate = certify(
            problem,
            self.cost,
            np.zeros(self.details.shape[1]) if prices is None else prices,
            rows=self.indices,
            plan=self.plan,
            proven=self.details.proven,
            time_limit=seconds,
            progress=Progress(progress),
        )
        self.details.timings["certificate"] = self.certificate.seconds
        return self.certificate

    def improve(self, seconds: float, *, progress: bool | None = None) -> Selection:
        """Swap rows for better ones for at most `seconds`; the cost never rises.

        Works on the selection of any method, and returns a new one whose rows all count equally.
        Ends early where no single swap lowers the cost. With groups rows are swapped inside each.

        >>> import uniproto
        >>> random = uniproto.select([[0.0], [1.0], [5.0], [6.0], [7.0]], k=1, method="random",
        ...                          metric="euclidean")
        >>> random.improve(seconds=1).indices
        array([2])
        """
        seconds = require_seconds("seconds", seconds)
        from uniproto.methods.greedy import Greedy
        from uniproto.methods.search.search import search

        problem, details, shown = self._with_problem(), self.details, Progress(progress)
        begin = time.perf_counter()
        group_rows: Any = None
        if problem.groups:
            picks, group_rows = improve_in_groups(problem, self._group_rows, seconds, shown)
        else:
            rows = self.indices.astype(np.intp)
            picks = search(problem, Greedy(), seconds, shown, rows)
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
        columns); the result is of the same kind. Without it: the rows as `select` was given them;
        a data frame if they were read from a file, or the selection was loaded.

        >>> import uniproto
        >>> sel = uniproto.select([[1.0, 0.0], [0.8, 0.2], [0.0, 1.0]], k=1)
        >>> sel.rows(["first", "second", "third"])
        ['second']
        """
        if source is None:
            given = self.details.given
            if given.as_frame:
                return as_frame(take_rows(given.source, self.indices), "rows(source)")
            source = given.source
            if source is None and self.details.prototypes is not None:
                return as_frame(self.details.prototypes, "rows(source)")
        count = getattr(source, "shape", [None])[0] if source is not None else None
        count = len(source) if count is None and hasattr(source, "__len__") else count
        if count != self.details.shape[0]:
            raise InvalidInputError(
                f"must have the {self.details.shape[0]:,} rows that were selected from. "
                "Pass the table as it was, before or after other columns were added.",
                parameter="source",
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

    def to_frame(self) -> pd.DataFrame:
        """A data frame: row number, rank, how many targets it represents, its own values.

        Where the source is a data frame, the index is that of its rows.
        """
        from uniproto.selection.prototypes import prototype_table

        frame = as_frame(prototype_table(self), "to_csv()")
        source = self.details.given.source
        return frame.set_index(source.index[self.indices]) if hasattr(source, "iloc") else frame

    def to_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write a CSV file with a line per prototype, like `to_frame`; returns its path."""
        from uniproto.selection.prototypes import prototype_table, write_csv

        table = prototype_table(self)
        with writing(Path(path), "the table"), atomic_write(Path(path)) as file:
            write_csv(table, file)
        return Path(path)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write selection.parquet, plan.npz and manifest.json; returns the folder.

        With a certificate, also certificate.npz; the prototypes of a table as .parquet and .csv.
        Of a question about files this is the folder of `uniproto select -o`: it records the call
        and the digests of the files, so that `uniproto verify` can check it.
        """
        from uniproto.selection.storage import save_selection

        return save_selection(self, Path(folder))

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        source: Any = None,
        target: Any = None,
        **problem: Unpack[ProblemOptions],
    ) -> Selection:
        """Read what `save` or the command line wrote.

        With the `source` it was made from, a path or rows (and the target, groups, weights and
        limits, where there were any), the selection can do everything again: `improve`, `certify`,
        `assign` with distances, `report` with a map. Metric and preparation are those that were
        saved. The saved plan must cost on these data what it cost then, or they are refused.
        """
        from uniproto.selection.storage import damaged, read_fields, require_sums

        selection = cls(**read_fields(Path(folder)))
        try:
            require_sums(selection)
        except (ValueError, TypeError) as error:
            raise damaged(Path(folder), error) from error
        if source is None:
            return selection
        return selection._with_data(source, target, problem)

    def _with_data(self, source: Any, target: Any, options: ProblemOptions) -> Selection:
        """The same selection with the data it was made from, which must give the same cost."""
        details, question = self.details, self._problem_for("load", source, target, options)
        if question.costs.shape != details.shape:
            raise ChangedInputError(
                f"must be the data of this selection, {details.shape[0]:,} rows for "
                f"{details.shape[1]:,} targets, not {question.m:,} for {question.n:,}.",
                parameter="source",
            )
        question = question.with_k(self.k)
        if details.updated is not None:
            question = question.changed(keep=details.updated.rule(question))
        found = float(self.plan.data @ arc_costs(question, self.indices, self.plan))
        if not abs(found - self.cost) <= _SAME_COST * max(self.cost, details.beta * 1e-3):
            raise ChangedInputError(
                "must be the data of this selection, with the same target, groups and "
                f"weights: its plan costs {found:.6g} here, and {self.cost:.6g} as it was saved.",
                parameter="source",
            )
        rows = {
            group.label: np.searchsorted(
                group.source_rows, self.indices[np.isin(self.indices, group.source_rows)]
            )
            for group in question.groups
        }
        return Selection(
            indices=self.indices,
            weights=self.weights,
            details=replace(details, given=question.given),
            transport=self._transport,
            group_costs=self.group_costs,
            certificate=self.certificate,
            problem=question,
            group_rows=rows,
        )

    def _with_problem(self, instead: str = "") -> Problem:
        """The problem that was solved; `instead` is what else helps where it is not known."""
        if self._problem is None:
            raise InvalidInputError(
                "A loaded selection no longer holds the data. Pass them: "
                f"Selection.load(folder, source=…){instead}."
            )
        return self._problem

    def _problem_for(
        self, function: str, source: Any, target: Any, options: ProblemOptions
    ) -> Problem:
        """A problem of other rows, which are prepared and compared as those of this one."""
        if isinstance(source, Problem):
            return as_problem(function, source, target, options)
        known: Any = {"metric": self.details.measure, "seed": self.details.seed}
        if self.details.preparation is not None:
            known["features"] = self.details.preparation
        return Problem(source, target, **{**known, **options})

    def update(
        self,
        source: Any = None,
        target: Any = None,
        *,
        changes: int | None = None,
        k: int | None = None,
        ids: Any = None,
        seconds: float | None = None,
        certify: bool | float = False,
        progress: bool | None = None,
        **problem: Unpack[ProblemOptions],
    ) -> Selection:
        """A selection for data that have changed, which keeps most of these prototypes.

        The prototypes are found again among the new rows, which are prepared and compared as the
        earlier ones were. `table()` prints what fewer and more changes would cost, and
        `details.changes` says who left, who came and what that saves.

        Args:
            source: the new pool: rows of the same kind, the path of a file, or a `Problem`.
                Default: the rows that this selection was made from.
            target: what the prototypes must represent now. Default: the new source.
            changes: how many of the prototypes may be others than before, at most; one that is not
                among the new rows any more counts. Default: the fewest with which the cost is
                within 1 % of that of a fresh selection.
            k: how many prototypes there are to be. Default: as many as before. Those that are added
                count as changes.
            ids: what names a row for good: a column, or a pair of sequences for the rows selected
                from and the new ones. Default: the column that `features` names as `id`, or else a
                prototype is the first row of its very values.
            seconds: how long to look for better rows.
            certify: also prove a lower bound on the cost of any rows with so few changes, as in
                `select`.
            progress: True or False to force or forbid progress bars.
            problem: as for `Problem`. What concerns rows, such as `exclude`, is about the new ones.

        >>> import uniproto
        >>> march = [[0.0], [1.0], [5.0], [6.0]]
        >>> sel = uniproto.select(march, k=2, metric="euclidean")
        >>> april = sel.update([*march, [9.0], [10.0], [9.5]], changes=1)
        >>> sel.indices, april.indices, april.details.changes[0].left
        (array([0, 2]), array([0, 6]), 2)
        """
        from uniproto.selection.found_again import found_again
        from uniproto.selection.update import updated

        certified, limit = as_time_limit(certify)
        same = source is None
        if same and self._problem is None:
            raise InvalidInputError(
                "must be the new rows, as this selection was loaded.", parameter="source"
            )
        if same and target is None and not problem:
            assert self._problem is not None
            question = self._problem.changed(keep=None)
        else:
            source = self.details.given.source if same else source
            if not isinstance(source, Problem):
                problem = self._still_asked(target, problem)
            question = self._problem_for("update", source, target, problem)
        found = self.indices if same else found_again(self, question, ids)
        selection = updated(
            self,
            question,
            found.astype(np.intp),
            changes=changes,
            k=k,
            seconds=None if seconds is None else require_seconds("seconds", seconds),
            progress=progress,
        )
        if certified:
            selection.certify(seconds=limit, progress=progress)
        return selection

    def drift(self, source: Any, target: Any = None, *, seed: int = 0) -> Drift:
        """Whether new rows are still like those that the prototypes represent.

        Tested by permutations at a level of 5 % (`alarm`, `p_value`). What the prototypes cost the
        new rows, how many of these are far from all of them, which prototypes gain or lose and
        which columns make the difference: all next to what halves of the old rows differ by.

        Args:
            source: the new rows, or the path of a file.
            target: what the prototypes must represent now. Default: the new rows.
            seed: for drawing halves, permutations, and samples of many rows.

        >>> import numpy as np
        >>> import uniproto
        >>> draw = np.random.default_rng(0)
        >>> march, april = draw.normal(size=(200, 2)), draw.normal(size=(200, 2)) + [1, 0]
        >>> uniproto.select(march, k=5, metric="euclidean").drift(april).alarm
        True
        """
        from uniproto.selection.drift import drift

        problem = self._with_problem()
        new = self._problem_for("drift", source, target, {})
        return drift(self, problem, new, seed=seed)

    def table(self) -> None:
        """Print what fewer and more changes would cost, of a selection that `update` made."""
        if self.details.updated is None:
            raise InvalidInputError(
                "table() is about the changes of an update. Call selection.update(rows).table(); "
                "for the prototypes themselves, to_frame()."
            )
        print(self.details.updated.table(self.details.shape[1]))

    def _still_asked(self, target: Any, options: ProblemOptions) -> ProblemOptions:
        """What is asked of new rows: what was asked before must not be left out by mistake."""
        before = self._problem
        if before is None:
            return options
        asked = {
            "target": target is None and not before.same_set,
            "target_weights": before.target_weights is not None,
            "limits": before.limits is not None,
        }
        for name in asked:
            if asked[name] and name not in options:
                raise InvalidInputError(
                    "must be given for the new rows, too, as this selection had it.", parameter=name
                )
        apart: Any = {} if before.twin_distance is None else {"min_distance": before.twin_distance}
        return {**apart, **options}

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

        Labels and the like are one value per source row, or a pair of such: of the source's rows
        and of the target's, where the target is another set. Each may be the name of a column of a
        table, or of an array of an .npz file. Default: what the selection was made by.

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
        from uniproto.report.inputs import examples_of

        known = {
            "labels": labels, "text": text, "images": images, "ids": ids, "groups": groups,
            "positions": positions,
        }  # fmt: skip
        data = self.details.given.inputs[0]
        return write_report(
            self,
            path,
            *examples_of(self, self._problem, known),
            problem=self._problem,
            title=title or (data.path and data.path.name),
            commands=[("This page", f"selection.report({os.fspath(path)!r})")],
            random=random,
        )

    def summary(self) -> str:
        """A few lines for people."""
        from uniproto.selection.words import summary

        return summary(self, self._problem)

    def in_words(self) -> str:
        """What the cost means, compared with random rows where that takes a moment.

        >>> import uniproto
        >>> points = [[0.0], [1.0], [5.0], [6.0]]
        >>> words = uniproto.select(points, k=2, metric="euclidean").in_words()
        >>> words[:58]
        'a typical row is 0 from its prototype, the mean is 0.500; '
        """
        from uniproto.report.verdict import mean_in_words
        from uniproto.selection.words import distance_in_words

        words = distance_in_words(self, self._problem)
        if self.details.method != "random" and self._random_costs:
            words += f"; with random ones {mean_in_words(self._random_costs)}"
        if self.details.proof is not None:
            words += "; none are closer (proven)"
        return words

    @cached_property
    def _random_costs(self) -> list[float]:
        """The costs of the page's random choices, unless there are too many costs to look at."""
        from uniproto.report.verdict import RANDOM_DRAWS, random_costs

        if self.k * self.details.shape[1] > _FEW_COSTS:
            return []
        return random_costs(self, self._problem, RANDOM_DRAWS, None)[0]

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
            raise IndexError(f"index {number} is out of range for {self.k} prototypes")
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
        m, n = self.details.shape
        first = ", ".join(map(str, self.indices[:6].tolist()))
        more = ", …" if self.k > 6 else ""
        found = f"{self.details.method}{cost}, [{first}{more}]"
        return f"Selection(k={self.k} of {m} for {n} targets, {found})"

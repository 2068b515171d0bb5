"""The result: which rows were chosen, what they cost, and which targets each represents."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError, printable, require_seconds
from uniproto.geometry.metrics import metric_label
from uniproto.methods.contract import Picks
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import Transport, transport

if TYPE_CHECKING:
    from uniproto.certificate.bound import Certificate


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
        gains: NDArray[np.float64],
        weights: NDArray[np.float64],
        beta: float,
        shape: tuple[int, int],
        metric: str,
        bandwidth: float | None = None,
        method: str,
        options: Mapping[str, Any],
        seed: int,
        timings: dict[str, float],
        notes: Mapping[str, Any],
        transport: Transport | None = None,
        group_costs: dict[Hashable, float] | None = None,
        certificate: Certificate | None = None,
        problem: Problem | None = None,
        picks: Picks | None = None,
        group_rows: Mapping[Hashable, NDArray[np.int64]] | None = None,
    ) -> None:
        self.indices = indices
        self.gains = gains
        self.weights = weights
        self.beta = beta
        self.shape = shape
        self.metric = metric
        self.bandwidth = bandwidth  # of a metric that has one
        self.method = method
        self.options = dict(options)
        self.seed = seed
        self.timings = timings
        self.notes = dict(notes)
        self.certificate = certificate  # None until certified
        self._problem = problem
        self._picks = picks
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
        assert self._problem is not None  # else the transport was given by `load`
        assert self._picks is not None
        if self._picks.transport is not None:
            return self._picks.transport
        begin = time.perf_counter()
        solved = transport(self._problem, self.indices, self._picks.plan)
        self.timings["plan"] = time.perf_counter() - begin
        return solved

    def certify(
        self, *, time_limit: float | None = None, progress: bool | None = None
    ) -> Certificate:
        """Bound how much better any other k prototypes could be; sets `certificate`.

        Takes the constraints of the selection (`exclude`, `initial`, groups) into account. Stops
        when the bound no longer rises, or after `time_limit` seconds; a look at every row, without
        which there is no bound, may take as long again.
        """
        limit = require_seconds("time_limit", time_limit)
        if self._problem is None:
            raise InvalidInputError(
                "A loaded selection must be certified from its files, because it no longer holds "
                "the data. Run: uniproto certify FOLDER"
            )
        from uniproto.certificate.ascent import certify

        prices = self._transport.prices
        self.certificate = certify(
            self._problem,
            self.cost,
            np.zeros(self.shape[1]) if prices is None else prices,
            rows=self.indices,
            plan=self.plan,
            time_limit=limit,
            progress=Progress(progress),
        )
        self.timings["certificate"] = self.certificate.seconds
        return self.certificate

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write selection.parquet, plan.npz and manifest.json; returns the folder.

        With a certificate, also certificate.npz.
        """
        from uniproto.selection.storage import save_selection

        return save_selection(self, Path(folder))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Selection:
        """Read what `save` or the command line wrote."""
        from uniproto.selection.saved_record import require_sums
        from uniproto.selection.storage import damaged, read_fields

        selection = cls(**read_fields(Path(folder)))
        try:
            require_sums(selection)
        except ValueError as error:
            raise damaged(Path(folder), error) from error
        return selection

    def renumbered(
        self,
        rows: NDArray[np.integer[Any]],
        targets: NDArray[np.integer[Any]] | None,
        shape: tuple[int, int],
    ) -> Selection:
        """The same selection with other row numbers: `rows[i]` for i, `targets[j]` for target j.

        Targets without a number get an empty column in the plan and the price 0. The result no
        longer holds the data, like one that was loaded.
        """
        plan, certificate = self.plan, self.certificate
        if targets is not None:
            if certificate is not None:
                prices = np.zeros(shape[1])
                prices[targets] = certificate.prices
                certificate = replace(certificate, prices=prices)
            wide = (plan.data, targets[plan.indices], plan.indptr)
            plan = sp.csr_array(wide, shape=(self.k, shape[1]))
        return Selection(
            indices=rows[self.indices].astype(np.int64),
            gains=self.gains,
            weights=self.weights,
            beta=self.beta,
            shape=shape,
            metric=self.metric,
            bandwidth=self.bandwidth,
            method=self.method,
            options=self.options,
            seed=self.seed,
            timings=self.timings,
            notes=self.notes,
            transport=Transport(self.cost, plan, self.cost_is_exact),
            group_costs=self.group_costs,
            certificate=certificate,
        )

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        labels: Any = None,
        target_labels: Any = None,
        text: Any = None,
        target_text: Any = None,
        images: Any = None,
        target_images: Any = None,
        ids: Any = None,
        target_ids: Any = None,
        groups: Any = None,
        target_groups: Any = None,
        positions: Any = None,
        target_positions: Any = None,
        title: str | None = None,
        random: int | None = None,
    ) -> Path:
        """Write one self-contained HTML page about this selection; returns its path.

        Args:
            path: the file to write.
            labels: one class per source row, for coverage and filters.
            text: one text per source row. Cards show it.
            images: one picture per source row: an array (rows, height, width[, channels]), paths,
                file contents, Pillow images, or a folder. Cards show it.
            ids: one name per source row.
            groups: one group per source row. Default: the groups selected by.
            positions: two coordinates per source row, for the map. Default: principal components.
            target_labels, target_text, target_images, target_ids, target_groups,
                target_positions: the same per target row. Default: those of the source, where
                the target is the source.
            title: what the page is about.
            random: how many random choices to compare with. Default: 5, as far as half a minute
                allows.
        """
        from uniproto.report import report_selection

        pairs = {
            "labels": (labels, target_labels),
            "text": (text, target_text),
            "images": (images, target_images),
            "ids": (ids, target_ids),
            "groups": (groups, target_groups),
            "positions": (positions, target_positions),
        }
        return report_selection(self, path, self._problem, pairs, title=title, random=random)

    def summary(self) -> str:
        """A few lines for people."""
        m, n = self.shape
        word = "exactly" if self.cost_is_exact else "at most"
        lines = [
            f"{self.k} prototypes of {m:,} source rows for {n:,} targets "
            f"({self.method}, {metric_label(self.metric, self.bandwidth)})",
            f"  optimal-transport cost  {word} {self.cost:.6g}",
            f"  each represents         {n / self.k:.4g} targets' worth of mass, on average "
            f"{self.plan.nnz / self.k:.4g} different ones",
        ]
        if "search" in self.notes:
            lines.append(f"  search                  {self.notes['search']}: {self.notes['why']}")
        if "interrupted" in self.notes:
            lines.append("  stopped early           the best rows at that moment were kept")
        if self.certificate is not None:
            lines.insert(2, f"  certificate             {self.certificate}")
        if self.group_costs:
            costs = ", ".join(
                f"{printable(label)}: {cost:.4g}" for label, cost in self.group_costs.items()
            )
            lines.append(f"  cost within groups      {costs}")
        spent = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in self.timings.items())
        lines.append(f"  time                    {spent}")
        return "\n".join(lines)

    def __len__(self) -> int:
        return self.k

    def __repr__(self) -> str:
        known = "_transport" in self.__dict__
        cost = f"cost={self.cost:.6g}" if known else "cost not computed yet"
        m, n = self.shape
        first = ", ".join(map(str, self.indices[:6].tolist()))
        more = ", …" if self.k > 6 else ""
        return (
            f"Selection(k={self.k} of {m} for {n} targets, {self.method}, {cost}, [{first}{more}])"
        )

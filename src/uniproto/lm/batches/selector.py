"""The choice inside a training step: arrays in, indices out, no framework."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels
from uniproto.errors import InfeasibleError, InvalidInputError, require_int, require_name
from uniproto.geometry.costs import MATRIX_METRICS, METRICS, checked_bandwidth
from uniproto.lm.batches.inputs import (
    Gram,
    as_features,
    as_numbers,
    finite_examples,
    finite_rows,
    group_by_source,
    nonzero,
    off_device,
    products_on_one_core,
    require_costs_of_at_least_zero,
    require_directions,
)
from uniproto.lm.batches.methods import Part, as_batch_method, validation_gain
from uniproto.lm.batches.quotas import by_largest_remainder, carry_over, shares
from uniproto.methods import Method
from uniproto.problem.groups import quotas
from uniproto.problem.masses import integer_masses
from uniproto.transport.exact import partial_plan

MODES = ("batch", "source")
Rows = NDArray[np.int64]
_RANDOM_DRAWS = 8


@dataclass(frozen=True, eq=False)
class BatchRecord:
    """One selection: what was chosen, what was skipped and why that many of each source.

    `cost`, `random_cost` and `least_cost` are computed on first use (a few milliseconds each), from
    the features of the call, which the record holds until the next one takes its place. All are
    measured with the selector's metric, so they compare with each other, not across metrics.
    """

    indices: NDArray[np.int64]
    pool: Part = field(repr=False)
    usable: NDArray[np.int64] = field(repr=False)
    sources: NDArray[Any] | None = field(repr=False)
    blocks: list[tuple[NDArray[np.int64], int]] = field(repr=False)  # rows, and how many of them
    seed: tuple[int, ...] = field(repr=False)
    seconds: float

    @cached_property
    def left_out(self) -> NDArray[np.int64]:
        """Examples that could not be used: NaN or infinity in what was given of them."""
        return np.setdiff1d(np.arange(self.pool.size), self.usable)

    @cached_property
    def per_source(self) -> dict[Hashable, int]:
        """How many examples of each source of the pool were chosen; empty without sources."""
        if self.sources is None:
            return {}
        chosen = self.sources[self.indices].tolist()
        names = dict.fromkeys(sorted(set(self.sources.tolist())), 0)
        for name in chosen:
            names[name] += 1
        return names

    @cached_property
    def cost(self) -> float:
        """Exact transport cost between the chosen examples, all with equal weight, and the pool.

        NaN where no features were given to measure by.
        """
        return self._cost(self.indices)

    @cached_property
    def random_cost(self) -> float:
        """What a random choice of as many examples (of each source) costs: the mean of 8 draws."""
        random = np.random.default_rng(self.seed)
        return float(np.mean([self._cost(self._drawn(random)) for _ in range(_RANDOM_DRAWS)]))

    @cached_property
    def least_cost(self) -> float:
        """A bound: no choice of as many examples costs less. NaN without features.

        Each of them carries n/k of the pool's mass, at least to the examples nearest to it: the
        mean of the k cheapest such fills.
        """
        if self._costs is None:
            return math.nan
        k, n = len(self.indices), len(self.usable)
        taken = np.clip(n / k - np.arange(n), 0, 1)  # how much of its nearest, second nearest, …
        fills = np.sort(self._costs, axis=1) @ taken * k / n
        return float(np.partition(fills, k - 1)[:k].mean())

    @cached_property
    def share_of_possible(self) -> float:
        """How much of what could be gained over random choices was gained: at most 1."""
        possible = self.random_cost - self.least_cost
        return (self.random_cost - self.cost) / possible if possible > 0 else math.nan

    @cached_property
    def _costs(self) -> NDArray[np.float64] | None:
        if self.pool.features is None:
            return None
        return self.pool.only(self.usable).costs.astype(np.float64)

    def _drawn(self, random: np.random.Generator) -> NDArray[np.int64]:
        return np.concatenate(
            [random.choice(rows, count, replace=False) for rows, count in self.blocks]
        )

    def _cost(self, chosen: NDArray[np.int64]) -> float:
        if self._costs is None:
            return math.nan
        masses = integer_masses(len(chosen), len(self.usable))
        rows = self._costs[np.searchsorted(self.usable, chosen)]
        return partial_plan(rows, masses.offer, masses.need).cost / masses.total


@dataclass(eq=False)
class BatchSelector:
    """Chooses which `keep` examples of a pool to train on, in every step of a training run.

    Args:
        method: `uniproto`; `greedy` (the paper's algorithm); `colm` (L1 medoids in the coordinates
            of largest magnitude, small sources whole) and `colm-raw` (in all coordinates); `greats`
            (largest fall of the validation loss); `gradnorm` (longest gradients); `maxloss`
            (largest losses); `sbert` (medoids by the cosine of sentence embeddings, passed as the
            features); `kmedoids` (greedy medoids); `random`; `full` (everything, whatever `keep`
            is). Or a method object with its options, such as `Greedy(plan=Entropic(0.01, 20))`.
        mode: `batch`, one selection over the pool, or `source`, one inside each source.
        keep: how many examples to choose.
        metric: how examples are compared: `euclidean`, `dot` (inner products, as in the paper's
            fine-tuning), `cosine` (as in its pretraining), `l1`, `sqeuclidean`, `rbf`, `laplacian`,
            or `precomputed` and `similarity`, where the features are an n × n matrix. Default:
            `euclidean` for `uniproto`, `l1` for `colm`, `cosine` for `sbert`, otherwise `dot`.
            Methods that compare nothing use it for `last.cost` alone.
        bandwidth: of `rbf` and `laplacian`: a number, a share of the median distance among the
            examples compared, such as `"0.25 median"`, or `"auto"`, the default.
        budgets: how `keep` is shared among sources: `proportional` to their examples in the pool,
            `balanced`, or a mapping from source to count. Shares are rounded by largest remainder;
            `carried` holds what a source still has to get, and the next call gives it.
        keep_small: take small sources whole and share the rest among the others. Names: those
            sources. True: those with no more examples in the pool than an equal share of `keep`; a
            number: with no more than that. Default: True for `colm`, otherwise False.
        coordinates: compare only this many coordinates, those with the largest mean magnitude over
            the pool, or over each source. Default: 2560 for `colm`, otherwise all.
        learning_rate: the η of `greats`. It may be changed before each call.
        seed: of the random draws. Call number t draws from (seed, t), so a resumed run repeats an
            uninterrupted one if `calls` and `carried` are set to what they were.

    Returns of a call: int64 indices into the pool, in the order picked; with `mode="source"` the
    sources come one after another, sorted by name. There are always exactly `keep` (`full`: all).

    An example with NaN or infinity in its features or loss, or without a direction where cosines
    are compared, is skipped: it is neither chosen nor a target. `last.left_out` lists
    these; `last` also has `per_source`, `cost`, `random_cost` and `seconds`.

    >>> gradients = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [np.nan, 0.0], [0.1, 0.9]])
    >>> selector = BatchSelector("uniproto", "source", keep=2)
    >>> selector(gradients, sources=["algebra", "algebra", "logic", "logic", "logic"])
    array([0, 2])
    >>> selector.last.left_out, selector.last.per_source
    (array([3]), {'algebra': 1, 'logic': 1})

    Reference: Chanda et al., "UniPROT", AISTATS 2026, section 5.2.
    """

    method: str | Method = "uniproto"
    mode: str = "batch"
    keep: int = 64
    metric: str | None = None
    budgets: str | Mapping[Hashable, int] = "proportional"
    keep_small: bool | int | Collection[Hashable] | None = None
    coordinates: int | None = None
    learning_rate: float = 2e-5
    seed: int = 0
    bandwidth: float | str | None = None
    calls: int = field(default=0, init=False)
    carried: dict[Hashable, float] = field(default_factory=dict, init=False, repr=False)
    last: BatchRecord | None = field(default=None, init=False, repr=False)
    whole_if_few: bool = field(default=False, init=False, repr=False)  # take all, refuse nothing

    def __post_init__(self) -> None:
        self._chooses = as_batch_method(self.method)
        require_name("mode", self.mode, MODES)
        if self.metric is not None:
            require_name("metric", self.metric, METRICS)
        checked_bandwidth(self._metric, self.bandwidth)
        self.keep = require_int("keep", self.keep)
        self.seed = require_int("seed", self.seed, least=0)
        if self.coordinates is not None:
            self.coordinates = require_int("coordinates", self.coordinates)
        self._check_keep_small()
        if not isinstance(self.budgets, Mapping):
            require_name("budgets", self.budgets, ("proportional", "balanced"))
        elif self.keep_small:
            raise InvalidInputError(
                "must be left out with budgets that count every source.", parameter="keep_small"
            )
        if self._chooses.gradients and self._metric in MATRIX_METRICS:
            raise InvalidInputError(
                f"is {self._chooses.name!r}, which needs gradients, not "
                f"metric={self._metric!r}. Pass gradients, or a Gram of their inner products.",
                parameter="method",
            )

    def _check_keep_small(self) -> None:
        small = self.keep_small
        if small is None or isinstance(small, bool | np.bool_):
            return
        if isinstance(small, Collection):
            self.keep_small = frozenset([small] if isinstance(small, str) else small)
        else:
            self.keep_small = require_int("keep_small", small, least=0)

    def __call__(
        self,
        features: Any,
        *,
        sources: Any = None,
        losses: Any = None,
        validation_features: Any = None,
    ) -> Rows:
        """Choose `keep` examples of this pool.

        Args:
            features: one row per example (gradients, embeddings); a `Gram` of inner products; with
                a matrix metric the n × n matrix. None where the method does not look at them.
            sources: one label per example. Needed with `mode="source"`.
            losses: one loss per example. Needed by `maxloss`.
            validation_features: gradients of validation anchors. Needed by `greats`, unless the
                features are a `Gram` with `validation`.
        """
        begin = time.perf_counter()
        pool = self._read(features, losses, validation_features, sources)
        one_core = products_on_one_core(pool.features, pool.metric)
        with one_core, np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            labels = (
                None if sources is None else as_labels(off_device(sources), "sources", pool.size)
            )
            usable = self._usable(pool)
            blocks = self._blocks(usable, labels)
            self._require_comparable(pool.only(usable))
            parts, counts = [pool.only(rows) for rows, _ in blocks], [k for _, k in blocks]
            picks = self._chooses.picks(parts, counts)
            chosen = [rows[some] for (rows, _), some in zip(blocks, picks, strict=True)]
        indices = chosen[0] if len(chosen) == 1 else np.concatenate(chosen)
        self.last = BatchRecord(
            indices=indices,
            pool=pool,
            usable=usable,
            sources=labels,
            blocks=blocks,
            seed=(self.seed, self.calls, 1),
            seconds=time.perf_counter() - begin,
        )
        self.calls += 1
        return indices

    @property
    def _metric(self) -> str:
        return self._chooses.metric if self.metric is None else self.metric

    def _read(self, features: Any, losses: Any, validation_features: Any, sources: Any) -> Part:
        """The pool as arrays, with everything the method needs."""
        needs, name = self._chooses.needs, self._chooses.name
        for parameter, given in (("features", features), ("losses", losses)):
            if given is None and parameter in needs:
                raise InvalidInputError(
                    f"is {name!r}, which needs {parameter}, one per example.", parameter="method"
                )
        if sources is None and self.mode == "source":
            raise InvalidInputError(
                "is 'source', which needs sources, one label per example.", parameter="mode"
            )
        if features is not None:
            features = as_features(features, self._metric in MATRIX_METRICS)
        known = next((given for given in (features, losses, sources) if given is not None), None)
        if known is None:
            raise InvalidInputError("Pass features, losses or sources, one row per example.")
        size, gain = len(known), None
        if "validation_features" in needs:
            gain = validation_gain(features, validation_features)
        return Part(
            size=size,
            features=features,
            losses=None if losses is None else as_numbers(losses, "losses", 1),
            validation_gain=gain,
            random=np.random.default_rng((self.seed, self.calls)) if self._chooses.random else None,
            metric=self._metric,
            bandwidth=checked_bandwidth(self._metric, self.bandwidth),
            coordinates=self.coordinates or self._chooses.coordinates,
            learning_rate=self.learning_rate,
        )

    def _usable(self, pool: Part) -> Rows:
        """The examples whose numbers are all finite, ascending."""
        fine = np.ones(pool.size, np.bool_)
        if isinstance(pool.features, Gram):
            fine &= finite_examples(pool.features.pool)
        elif pool.metric in MATRIX_METRICS and pool.features is not None:
            fine &= finite_examples(pool.features)
        elif pool.features is not None:
            fine &= finite_rows(pool.features)
        if pool.metric == "cosine" and self._chooses.compares:
            fine &= nonzero(pool.features)
        for values in (pool.losses, pool.validation_gain):
            if values is not None:
                fine &= np.isfinite(values)
        usable = np.flatnonzero(fine)
        if (self._chooses.takes_all or self.whole_if_few) and len(usable):
            return usable
        if self.keep > pool.size and len(usable):
            raise InvalidInputError(
                f"must not exceed the {pool.size} examples of the pool (got {self.keep}).",
                parameter="keep",
            )
        if self.keep > len(usable):
            raise InfeasibleError(
                f"Only {len(usable)} of {pool.size} examples can be used for keep={self.keep}: the "
                "others hold NaN or infinity, or for cosines only zeros. Lower the learning rate "
                "if training has diverged, or lower keep."
            )
        return usable

    def _blocks(self, usable: Rows, labels: NDArray[Any] | None) -> list[tuple[Rows, int]]:
        """The rows to choose from together, and how many of them to choose."""
        if self._chooses.takes_all or (self.whole_if_few and len(usable) <= self.keep):
            return [(usable, len(usable))]
        if self.mode == "batch" or labels is None:
            return [(usable, self.keep)]
        names, rows_of = group_by_source(labels, usable)
        counts = self._quotas(names, np.array([len(rows) for rows in rows_of]))
        return [(rows, int(count)) for rows, count in zip(rows_of, counts, strict=True) if count]

    def _quotas(self, names: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        if isinstance(self.budgets, Mapping):
            # A source may be missing from a pool if it wants nothing.
            present = set(names.tolist())
            budgets = {name: n for name, n in self.budgets.items() if name in present or n != 0}
            return quotas(self.keep, budgets, names, sizes, np.zeros_like(sizes), sizes)
        small = self._small(names, sizes)
        counts = np.where(small, sizes, 0)
        left = self.keep - int(counts.sum())
        if left < 0 and isinstance(self.keep_small, frozenset):
            # A pool with more of them than there are places: they share those.
            return np.where(small, self._shared(self.keep, names, np.where(small, sizes, 0)), 0)
        if left < 0:
            raise InfeasibleError(
                f"{self.keep_small} takes {counts.sum()} examples, more than "
                f"keep={self.keep}. Lower keep_small or raise keep.",
                parameter="keep_small",
            )
        others = np.where(small, 0, sizes)
        return counts + self._shared(left, names, others) if left and others.any() else counts

    def _shared(
        self, places: int, names: NDArray[Any], sizes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Quotas of the sources with a size above 0, with what is due to them from before."""
        sharing = np.flatnonzero(sizes)
        labels, most = names[sharing].tolist(), sizes[sharing]
        due = np.array([self.carried.get(name, 0.0) for name in labels])
        wanted = shares(places, most, self.budgets == "balanced") + due
        random = np.random.default_rng((self.seed, self.calls, 2))
        counts = np.zeros_like(sizes)
        counts[sharing] = by_largest_remainder(places, wanted, most, random)
        carry_over(self.carried, labels, wanted, counts[sharing])
        return counts

    def _small(self, names: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        keep_small = self.keep_small
        if keep_small is None:
            keep_small = self._chooses.keep_small
        if isinstance(keep_small, frozenset):
            return np.array([name in keep_small for name in names.tolist()], np.bool_)
        if isinstance(keep_small, int) and not isinstance(keep_small, bool):
            return sizes <= keep_small
        return sizes * len(sizes) <= self.keep if keep_small else np.zeros(len(sizes), np.bool_)

    def _require_comparable(self, pool: Part) -> None:
        """Refuse what would run, and choose badly."""
        if not self._chooses.compares:
            return
        if pool.metric == "cosine" and pool.size > 1:
            require_directions(pool.features)
        elif pool.metric == "precomputed" and not isinstance(pool.features, Gram):
            require_costs_of_at_least_zero(pool.features)

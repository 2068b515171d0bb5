"""How each method chooses k examples of one pool, or of one source of it.

Every function takes a `Part` and returns k of its rows, in the order picked; those with compiled
loops take all parts at once. Of equals the lowest row is taken first. Nothing here reads a random
number that does not come from `Part.random`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError, require_name
from uniproto.geometry.bandwidth import MedianShare
from uniproto.geometry.costs import MATRIX_METRICS
from uniproto.lm.batches.inputs import (
    Gram,
    as_numbers,
    finite_rows,
    inner_products,
    largest_coordinates,
    norms,
    pool_costs,
)
from uniproto.methods import Greedy, Method, UniProto, as_method
from uniproto.problem.problem import Problem
from uniproto.problem.values import Compute
from uniproto.runtime.progress import Progress

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """The input of one selection: the usable examples of the pool, or of one source."""

    size: int
    features: Any  # rows of features, or a Gram; this and what follows: None where not needed
    losses: Any
    validation_gain: Any  # mean over anchors v of ⟨g_i, g_v⟩
    random: Any
    metric: str
    bandwidth: float | MedianShare | None
    coordinates: int | None
    learning_rate: float

    def only(self, rows: Rows) -> Part:
        """The same for some of the rows, in ascending order."""
        if len(rows) == self.size:
            return self
        features = self.features
        if isinstance(features, Gram):
            features = Gram(features.pool[np.ix_(rows, rows)])
        elif features is not None and self.metric in MATRIX_METRICS:
            features = features[np.ix_(rows, rows)]
        elif features is not None:
            features = features[rows]
        return replace(
            self,
            size=len(rows),
            features=features,
            losses=None if self.losses is None else self.losses[rows],
            validation_gain=None if self.validation_gain is None else self.validation_gain[rows],
        )

    @property
    def costs(self) -> NDArray[Any]:
        features = self.features
        if self.coordinates is not None and not isinstance(features, Gram):
            features = largest_coordinates(features, self.coordinates)
        return pool_costs(features, self.metric, self.bandwidth)


def pick_greedily(parts: list[Part], counts: list[int]) -> list[Rows]:
    """UniPROT with plan `extend`: source and target are these examples, each prototype 1/k."""
    return fill_picks([part.costs for part in parts], counts, exchanges=False)[0]


def pick_uniproto(parts: list[Part], counts: list[int]) -> list[Rows]:
    """`extend` and a few exact exchanges; where there are few sets of examples, the best one."""
    return fill_picks([part.costs for part in parts], counts, exchanges=True)[0]


def fill_picks(
    costs: list[NDArray[Any]], counts: list[int], *, exchanges: bool
) -> tuple[list[Rows], NDArray[np.float64]]:
    """The picks of `uniproto.algorithm.uniprot` on each of these costs, and what each pick cost.

    Exchanges improve them. One call for all: a compiled function takes longer to call than to
    choose from a small source.
    """
    from uniproto.lm.batches.kernels import choose  # Numba: a command's help needs none of it

    flat = np.concatenate([matrix.ravel() for matrix in costs], dtype=np.float64)
    sizes = np.array([len(matrix) for matrix in costs])
    picks, paid = choose(flat, sizes, np.array(counts), exchanges)
    return np.split(picks, np.cumsum(counts)[:-1]), paid


def pick_medoids(part: Part, k: int) -> Rows:
    """Greedy k-medoids (SPOT), which is greedy facility location with S = max(D) − D."""
    from uniproto.lm.batches.kernels import pick_by_coverage

    return pick_by_coverage(part.costs, k)


def pick_greats(part: Part, k: int) -> Rows:
    """GREATS: the largest expected fall of the validation loss, corrected after every pick.

    s_i = η · mean over validation anchors v of ⟨g_i, g_v⟩; take the largest, then s ← s −
    η²⟨g_taken, ·⟩, k times. The correction is of second order in the learning rate η: at the tiny η
    of fine-tuning it vanishes compared with s, and the method becomes the k largest s_i. Here s is
    divided by η, which changes no pick and lets η be 0, as at the start of a warm-up.

    Reference: Wang et al., "GREATS: online selection of high-quality data for LLM training in
    every iteration", NeurIPS 2024.
    """
    products = inner_products(part.features).astype(np.float64)
    scores = part.validation_gain
    free = np.ones(len(scores), np.bool_)
    picks = np.empty(k, np.int64)
    for position in range(k):
        row = int(np.argmax(np.where(free, scores, -np.inf)))
        picks[position] = row
        free[row] = False
        scores = scores - part.learning_rate * products[row]
    return picks


@np.errstate(over="ignore", invalid="ignore")
def validation_gain(features: NDArray[Any] | Gram, anchors: Any) -> NDArray[np.float64]:
    """mean over validation anchors v of ⟨g_i, g_v⟩; anchors that are not finite do not count."""
    if isinstance(features, Gram):
        products = features.validation
        if products is None:
            raise InvalidInputError(
                "is 'greats', which needs features.validation. Pass Gram(pool, validation).",
                parameter="method",
            )
        # An anchor that is not finite spoils its whole column, an example only its own row.
        products = products[:, np.isfinite(products).any(axis=0)]
        if products.shape[1]:
            return products.mean(axis=1, dtype=np.float64)
    elif anchors is None:
        raise InvalidInputError(
            "is 'greats', which needs validation_features: gradients of a few examples drawn at "
            "random.",
            parameter="method",
        )
    else:
        anchors = as_numbers(anchors, "validation_features", 2)
        anchors = anchors[finite_rows(anchors)]
        if len(anchors):
            return features @ anchors.mean(axis=0, dtype=np.float64)
    raise InvalidInputError(
        "must hold an anchor without NaN or infinity. Draw others, or lower "
        "the learning rate if training has diverged.",
        parameter="validation_features",
    )


def pick_longest(part: Part, k: int) -> Rows:
    """GradNorm: the k gradients of largest norm."""
    return _largest(norms(part.features), k)


def pick_hardest(part: Part, k: int) -> Rows:
    """MaxLoss: the k largest losses."""
    return _largest(part.losses, k)


def pick_random(part: Part, k: int) -> Rows:
    """k examples drawn without replacement."""
    return part.random.permutation(part.size)[:k].astype(np.int64)


def pick_all(part: Part, k: int) -> Rows:
    """No selection: the whole pool."""
    return np.arange(part.size)


def _largest(values: NDArray[Any], k: int) -> Rows:
    return np.argsort(-values, kind="stable")[:k].astype(np.int64)


@dataclass(frozen=True)
class BatchMethod:
    """A method, the inputs it needs, and its defaults."""

    name: str
    pick: Callable[..., Any]  # of a part and how many of it, or of lists of both
    takes_lists: bool = False
    needs: frozenset[str] = frozenset({"features"})  # of the arguments of a call
    gradients: bool = False  # needs norms or inner products, not only costs
    random: bool = False
    takes_all: bool = False
    metric: str = "dot"
    keep_small: bool = False  # take small sources whole
    coordinates: int | None = None
    features: str = "gradient"
    aligned: bool = True  # divide gradients by the optimizer's √v
    moments: str = "optimizer"
    loss: str = "token"  # what a step minimises

    @property
    def compares(self) -> bool:
        """Whether it looks at costs between examples."""
        return "features" in self.needs and not self.gradients

    def picks(self, parts: list[Part], counts: list[int]) -> list[Rows]:
        """The chosen rows of every part."""
        if self.takes_lists:
            return cast("list[Rows]", self.pick(parts, counts))
        return [self.pick(part, k) for part, k in zip(parts, counts, strict=True)]


BATCH_METHODS = {
    method.name: method
    for method in (
        # W₁ with Euclidean costs bounds the error of the batch's mean gradient; inner products
        # favour long gradients, which bends it.
        BatchMethod("uniproto", pick_uniproto, True, metric="euclidean", loss="example"),
        BatchMethod("greedy", pick_greedily, True, metric="euclidean", loss="example"),
        BatchMethod(
            "colm",
            pick_medoids,
            metric="l1",
            keep_small=True,
            coordinates=2560,
            features="zeroth-order",
            moments="example",
        ),
        # As the paper runs it: on raw gradients of the LoRA weights, by backpropagation.
        BatchMethod("colm-raw", pick_medoids, metric="l1", keep_small=True, aligned=False),
        BatchMethod(
            "greats",
            pick_greats,
            needs=frozenset({"features", "validation_features"}),
            gradients=True,
            aligned=False,
        ),
        BatchMethod("gradnorm", pick_longest, gradients=True),
        BatchMethod("maxloss", pick_hardest, needs=frozenset({"losses"})),
        BatchMethod("sbert", pick_medoids, metric="cosine", features="embedding"),
        BatchMethod("kmedoids", pick_medoids),
        BatchMethod("random", pick_random, needs=frozenset(), random=True),
        BatchMethod("full", pick_all, needs=frozenset(), takes_all=True),
    )
}


def as_batch_method(method: str | Method) -> BatchMethod:
    """A method by its name, or a method object of `uniproto.methods`, on the same costs."""
    if isinstance(method, str):
        require_name("method", method, BATCH_METHODS)
        return BATCH_METHODS[method]
    method = as_method(method)
    if method in (UniProto(), Greedy()):
        # Training steps use the compiled loops, not the full search.
        return BATCH_METHODS[method.name]
    pick = partial(_pick_with, method)
    if isinstance(method, UniProto | Greedy):
        return replace(BATCH_METHODS[method.name], pick=pick, takes_lists=False, random=True)
    return BatchMethod(method.name, pick, random=True)


def _pick_with(method: Method, part: Part, k: int) -> Rows:
    costs = part.costs
    problem = Problem(
        costs - min(costs.min(), 0),  # rounding may have put some below 0
        metric="precomputed",
        seed=int(part.random.integers(2**31)),
        compute=Compute(device="cpu"),
    ).with_k(k)
    return method.pick(problem, Progress(shown=False)).rows.astype(np.int64)

"""From a plan of whole masses to one of the weights that these are rounded from."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.costs import Costs

Numbers = NDArray[np.float64]


def plan_for_weights(
    costs: Costs, rows: NDArray[np.intp], plan: sp.csr_array, weights: Numbers, slack: float
) -> sp.csr_array:
    """The plan with `weights[j]` of target j, in which all prototypes have the same mass again.

    The prototype with most of a target takes the rest of it. Prototypes that then have too much
    pass the surplus on, through the targets where that is cheapest, unless the whole surplus costs
    at most `slack`.
    """
    arcs = sp.coo_array(plan)
    order = np.lexsort((arcs.data, arcs.col))
    most = order[np.append(np.diff(arcs.col[order]) > 0, True)]
    others = np.bincount(arcs.col, arcs.data, minlength=len(weights))[arcs.col[most]]
    others -= arcs.data[most]  # nothing, where one has all of it: then the least weight is kept
    held = np.maximum(weights[arcs.col[most]] - others, 0.0)
    added, arcs.data[most] = held - arcs.data[most], held
    plan = sp.csr_array(arcs)
    surplus = np.bincount(arcs.row[most], added, minlength=len(rows))
    if np.abs(surplus).sum() / 2 * costs.ceiling <= slack:
        return plan
    moves: list[tuple[float, int, int]] = []
    takers = np.flatnonzero(surplus < 0).tolist()
    for giver in np.flatnonzero(surplus > 0).tolist():
        held = slice(plan.indptr[giver], plan.indptr[giver + 1])
        columns, left = plan.indices[held], plan.data[held].copy()
        while surplus[giver] > 0 and takers:
            taker = takers[-1]
            dearer = np.diff(costs.exact_block(rows[np.array([giver, taker])], columns), axis=0)[0]
            cheapest = int(np.argmin(np.where(left > 0, dearer, np.inf)))
            amount = min(surplus[giver], -surplus[taker], left[cheapest])
            moves += [(-amount, giver, columns[cheapest]), (amount, taker, columns[cheapest])]
            left[cheapest] -= amount
            surplus[giver] -= amount
            surplus[taker] += amount
            if surplus[taker] >= 0:
                takers.pop()
    if not moves:
        return plan
    amounts, places, columns = zip(*moves, strict=True)
    return sp.csr_array(plan + sp.csr_array((amounts, (places, columns)), shape=plan.shape))

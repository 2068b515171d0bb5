"""Ten rows that reviewers know by name, kept for half a year while the data change.

A shop's orders: every month brings new ones, and from month to month more of them come from a new
kind of customer. The orders are drawn here; with a table of your own the calls are the same.
"""

import numpy as np
import pandas as pd

import uniproto

K, MONTHS, EACH = 10, 6, 40


def orders(month: int) -> pd.DataFrame:
    draw = np.random.default_rng(month)
    new = draw.random(EACH) < 0.06 * month
    return pd.DataFrame(
        {
            "order": [f"{month}-{number}" for number in range(EACH)],
            "euros": np.where(new, draw.normal(160, 20, EACH), draw.normal(60, 15, EACH)),
            "items": np.where(new, draw.normal(2, 0.5, EACH), draw.normal(6, 2, EACH)),
            "hour": draw.normal(np.where(new, 21, 14), 2, EACH),
        }
    )


def names(table: pd.DataFrame, selection: uniproto.Selection) -> set[str]:
    return set(table.order.iloc[selection.indices])


columns = uniproto.Columns(use=["euros", "items", "hour"])
table = orders(0)
golden = afresh = uniproto.select(table, K, features=columns)
changed = {"updated": 0, "afresh": 0}
for month in range(1, MONTHS):
    drift = golden.drift(orders(month))
    before = names(table, golden), names(table, afresh)
    table = pd.concat([table, orders(month)], ignore_index=True)
    golden = golden.update(table, ids="order")
    afresh = uniproto.select(table, K, features=golden.details.preparation)
    changed["updated"] += len(names(table, golden) - before[0])
    changed["afresh"] += len(names(table, afresh) - before[1])
    print(
        f"month {month}: {'drift' if drift.alarm else 'no drift'} (p = {drift.p_value:.3f}), "
        f"{len(golden.details.changes)} of {K} changed, "
        f"cost {golden.cost / afresh.cost - 1:+.1%} against a fresh selection"
    )
print(f"rows changed in {MONTHS - 1} months, updated: {changed['updated']}")
print(f"rows changed in {MONTHS - 1} months, chosen afresh: {changed['afresh']}")

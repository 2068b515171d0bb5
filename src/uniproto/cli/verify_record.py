"""Whether the files, the record and the rows of a result are what the inputs make of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.inputs import Inputs
from uniproto.cli.verify_check import Check, groups_by_label, recorded_method, same

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection

_SPARE_BYTES = 2**26  # of a table, for what is stored with it


def file_check(folder: Path, manifest: dict[str, Any]) -> Check:
    """The other files of a result, by the digests in its manifest."""
    from uniproto.data.tables import file_digest
    from uniproto.selection.storage import (
        CERTIFICATE,
        PLAN,
        PROTOTYPES,
        PROTOTYPES_CSV,
        SELECTION,
    )

    digests = manifest.get("files")
    digests = digests if isinstance(digests, dict) else {}
    expected = {SELECTION, PLAN} | ({CERTIFICATE} if "certificate" in manifest else set())
    wrong = sorted(
        name
        for name in expected | digests.keys()
        if Path(name).name != name  # of another folder
        or not (folder / name).is_file()
        or file_digest(folder / name) != digests.get(name)
    )
    for name in (PROTOTYPES, PROTOTYPES_CSV):
        if (folder / name).exists() and name not in digests:
            wrong.append(name)
    return Check("the files of the result have not changed", not wrong, ", ".join(wrong))


def record_check(manifest: dict[str, Any], selection: Selection, problem: Problem) -> Check:
    """What the manifest says twice, or could be read from the inputs."""
    import numpy as np

    method = recorded_method(manifest)
    timings = manifest["timings"]
    pairs = {
        "k": (manifest["k"], problem.k),
        "shape": (tuple(manifest["shape"]), problem.costs.shape),
        "metric": (manifest["metric"], problem.costs.metric),
        "bandwidth": (manifest["bandwidth"], problem.costs.bandwidth),
        "seed": (manifest["seed"], problem.seed),
        "method": (manifest["method"], method.name),
        "options": (manifest["options"], asdict(method)),  # type: ignore[call-overload]
        "beta": (manifest["beta"], problem.costs.ceiling),
        **_columns(manifest, problem),
        "group_costs": (
            list(selection.group_costs),
            [label for label, _ in groups_by_label(problem)],
        ),
        "timings": (all(0 <= seconds < math.inf for seconds in timings.values()), True),
    }
    eps = float(np.finfo(problem.costs.dtype).eps)
    wrong = [name for name, (said, found) in pairs.items() if not same(said, found, 64 * eps)]
    return Check("the record agrees with the inputs", not wrong, ", ".join(wrong))


def _columns(manifest: dict[str, Any], problem: Problem) -> dict[str, tuple[Any, Any]]:
    """What the manifest says of a table's columns, and what the inputs say."""
    from uniproto.selection.assigning import targets_digest

    given = problem.given
    if given is None or manifest["arguments"].get("engine") == "ray":  # which records neither
        return {}
    prepared = None if given.preparation is None else given.preparation.record()
    digest = manifest.get("target_features_sha256")  # earlier versions did not write it
    targets = None if digest is None else targets_digest(given)
    return {
        "target_features_sha256": (digest, targets),
        "features": (manifest.get("features"), list(given.columns) or None),
        "preparation": (manifest.get("preparation"), prepared),
    }


def row_check(selection: Selection, problem: Problem) -> Check:
    import numpy as np

    rows = selection.indices
    inside = (rows >= 0) & (rows < problem.m)
    different = len(np.unique(rows)) == len(rows)
    return Check(
        f"{problem.k} different rows of the source are chosen",
        bool(len(rows) == problem.k and inside.all() and different),
    )


def condition_checks(selection: Selection, problem: Problem) -> Iterator[Check]:
    """`initial`, `exclude`, groups and `distinct`, each where it was given."""
    import numpy as np

    rows, given = selection.indices, len(problem.initial)
    if given:
        yield Check("the given rows come first", np.array_equal(rows[:given], problem.initial))
    may = np.zeros(problem.m, bool)
    may[problem.initial] = may[problem.candidates] = True
    if not may.all():
        yield Check("no excluded row is chosen", bool(may[rows].all()))
    if problem.groups:
        wrong = [
            str(group.label)
            for group in problem.groups
            if np.isin(rows, group.source_rows).sum() != group.problem.k
        ]
        yield Check("every group has its number of rows", not wrong, ", ".join(wrong))
    if problem.limits is not None:
        wrong = problem.limits.broken(rows)
        yield Check("every source keeps to its limits", not wrong, ", ".join(wrong))
    if problem.twin_distance is not None:
        near = np.array([problem.costs.twin_distances(int(row), rows) for row in rows])
        twins = near <= problem.twin_distance
        twins &= twins.T
        np.fill_diagonal(twins, False)
        twins[:given, :given] = False
        yield Check("no two chosen rows are near-duplicates", not twins.any())


def name_checks(
    folder: Path, manifest: dict[str, Any], selection: Selection, inputs: Inputs
) -> Iterator[Check]:
    """Ids and copied rows, which people read instead of row numbers."""
    import pyarrow as pa

    from uniproto.runs.records import plain
    from uniproto.selection.prototypes import write_csv
    from uniproto.selection.storage import PROTOTYPES, PROTOTYPES_CSV, SELECTION

    rows, name = selection.indices, manifest["arguments"]["id"]
    if name is not None:
        ids = [plain(value) for value in inputs.pool.column(name, "--id")[rows]]
        first = _table(folder / SELECTION).column(0).to_numpy(zero_copy_only=False)
        holds = manifest.get("id") == {"column": name, "prototypes": ids}
        yield Check(
            "the ids are those of the chosen rows",
            holds and [plain(value) for value in first] == ids,
        )
    if inputs.pool.table is not None:
        chosen = inputs.pool.table.take(rows)
        try:
            found = _table(folder / PROTOTYPES, 2 * chosen.nbytes)
            holds = found is not None and found.equals(chosen)
        except (OSError, pa.ArrowException):
            holds = False
        yield Check(f"{PROTOTYPES} holds the chosen rows", holds)
        expected = BytesIO()
        write_csv(inputs.pool.table.take(rows), expected)
        written = folder / PROTOTYPES_CSV
        same = written.is_file() and written.read_bytes() == expected.getvalue()
        yield Check(f"{PROTOTYPES_CSV} holds the same", same)


def _table(path: Path, most: int = 0) -> Any:
    """A table of the result; None where it takes many more bytes than that."""
    from uniproto.data.tables import read_within

    with path.open("rb") as file:  # Arrow takes every path for UTF-8, which not every one is
        return read_within(file, most + _SPARE_BYTES)

"""`uniproto verify`: is a saved result what it says it is?"""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.inputs import Inputs
from uniproto.cli.recorded_inputs import add_moved, recorded_inputs
from uniproto.cli.recorded_paths import ChangedInputError
from uniproto.cli.select import chosen_method
from uniproto.errors import printable

if TYPE_CHECKING:
    from uniproto.problem.problem import Group, Problem
    from uniproto.selection.selection import Selection

_SUMS = 1e-12  # how far rounding puts sums off, as a share of them
_SHARES = 1e-9  # and sums of shares, as a share of what they should be
_PROVEN_ENTRIES = 200_000_000  # costs up to which a bound is proven in double precision
_OPTIMUM = 1e-8  # how far the search and rounding put an optimum off
_BOUND = 1e-3  # how far rounding on another machine puts a bound off that is not
_EMBEDDED = 1e-5  # vectors computed anew, in other batches, are off by as much
_REPEATED_ENTRIES = 4_000_000  # costs up to which a selection is made again
# Methods whose every pick is the best by its gain.
_GREEDY = ("uniproto", "kmedoids", "facility_location")
_REPEATED_ROWS = 100  # and prototypes
_SPARE_BYTES = 2**26  # of a table, for what is stored with it
_NO_OPTIONS = dict.fromkeys(("plan", "gains", "reg", "polish", "search", "seconds"))


@dataclass(frozen=True)
class Check:
    """One thing a result claims, whether it holds, and what was found."""

    claim: str
    holds: bool
    found: str = ""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="check a saved selection against its input files",
        description=textwrap.dedent("""\
            Recompute what OUT claims from its files and the input files alone, and say yes or no:
            that no file has changed; that the rows are allowed; that the plan gives every row 1/K
            and every target its weight; that it costs what is written, and no plan of these rows
            costs less; that the gains can be those of these rows; and, where OUT is certified, that
            the prices prove the lower bound, or that the search proves its optimum again."""),
        epilog=textwrap.dedent("""\
            example:
              uniproto select vectors.npy -k 100 --certify -o out
              uniproto verify out && echo "safe to use"

            exit status: 0 where every answer is yes, 1 where one is no, 2 where the folder or an
            input file cannot be read.
            """),
    )
    parser.add_argument("folder", metavar="OUT", help="a folder that 'uniproto select' has written")
    add_moved(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    verified = True
    for check in checks(Path(options.folder), options.moved):
        found = f" ({printable(check.found)})" if check.found else ""
        print(f"  {'yes' if check.holds else 'no ':3}  {check.claim}{found}", flush=True)
        verified = verified and check.holds
    print(f"verified: {'yes' if verified else 'no'}")
    return 0 if verified else 1


def checks(folder: Path, moved: Sequence[str] | None = None) -> Iterator[Check]:
    """Every claim of a saved result, checked; ends early where the next could not be read.

    `moved` are where input files are now.
    """
    from uniproto.selection.selection import Selection
    from uniproto.selection.storage import load_manifest, read_fields

    manifest = load_manifest(folder)
    claim = "the input files have not changed"
    try:
        inputs = recorded_inputs(folder, manifest, moved)
    except ChangedInputError as error:
        yield Check(claim, False, str(error))
        return
    yield Check(claim, True)
    files = _files(folder, manifest)
    yield files
    if not files.holds:
        return
    selection = Selection(**read_fields(folder))
    problem = inputs.problem()
    record = _record(manifest, selection, problem)
    yield record
    rows = _rows(selection, problem)
    yield rows
    if not (record.holds and rows.holds):
        return
    yield from _conditions(selection, problem)
    yield from _names(folder, manifest, selection, inputs)
    yield _shares(selection, problem)
    embedded = "embedding" in manifest["inputs"]["source"]
    slack = _EMBEDDED * problem.costs.ceiling if embedded else 0.0
    yield from _costs(selection, problem, slack)
    yield from _gains(manifest, selection, problem, slack)
    if not embedded:
        yield from _picks(manifest, selection, problem)
    yield from _certificate(manifest, selection, problem, slack)
    yield _sums(selection)


def _files(folder: Path, manifest: dict[str, Any]) -> Check:
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


def _record(manifest: dict[str, Any], selection: Selection, problem: Problem) -> Check:
    """What the manifest says twice, or could be read from the inputs."""
    import numpy as np

    method = chosen_method(argparse.Namespace(**_NO_OPTIONS | manifest["arguments"]))
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
        "group_costs": (list(selection.group_costs), [label for label, _ in _groups(problem)]),
        "timings": (all(0 <= seconds < math.inf for seconds in timings.values()), True),
    }
    eps = float(np.finfo(problem.costs.dtype).eps)
    wrong = [name for name, (said, found) in pairs.items() if not _same(said, found, 64 * eps)]
    return Check("the record agrees with the inputs", not wrong, ", ".join(wrong))


def _columns(manifest: dict[str, Any], problem: Problem) -> dict[str, tuple[Any, Any]]:
    """What the manifest says of a table's columns, and what the inputs say."""
    given = problem.given
    if given is None or manifest["arguments"].get("engine") == "ray":  # which records neither
        return {}
    prepared = None if given.preparation is None else given.preparation.record()
    return {
        "features": (manifest.get("features"), list(given.columns) or None),
        "preparation": (manifest.get("preparation"), prepared),
    }


def _rows(selection: Selection, problem: Problem) -> Check:
    import numpy as np

    rows = selection.indices
    inside = (rows >= 0) & (rows < problem.m)
    different = len(np.unique(rows)) == len(rows)
    return Check(
        f"{problem.k} different rows of the source are chosen",
        bool(len(rows) == problem.k and inside.all() and different),
    )


def _conditions(selection: Selection, problem: Problem) -> Iterator[Check]:
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


def _names(
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


def _shares(selection: Selection, problem: Problem) -> Check:
    import numpy as np

    plan, weights = selection.plan, problem.masses.weights
    with np.errstate(all="ignore"):
        rows_off = np.abs(plan.sum(axis=1) * problem.k - 1).max()
        columns_off = np.abs(plan.sum(axis=0) - weights).max() / weights.max()
    return Check(
        f"the plan gives every chosen row 1/{problem.k} and every target its weight",
        bool((plan.data >= 0).all() and rows_off <= _SHARES and columns_off <= _SHARES),
    )


def _costs(selection: Selection, problem: Problem, slack: float) -> Iterator[Check]:
    """The cost of the plan as it is written, and of the best plan of these rows.

    Tolerances are those of the costs in use: one that no plan pays, however large, has no say.
    """
    import numpy as np

    from uniproto.transport.prototypes import transport

    found, tolerance = _cost_of_plan(selection, problem)
    tolerance += slack
    yield Check(
        "the plan costs what is written",
        abs(found - selection.cost) <= tolerance,
        f"{selection.cost:.10g} written, {found:.10g} found",
    )
    best = transport(problem, selection.indices)
    if not (best.is_exact or selection.cost_is_exact):
        return  # then no exact solve fits, and the cost is the plan's
    tolerance += _SUMS * best.cost
    yield Check(
        "no plan of these rows costs less",
        best.is_exact == selection.cost_is_exact
        and abs(best.cost - selection.cost) <= 2 * tolerance,
        f"{best.cost:.10g} by another exact solve",
    )
    wrong = []
    for label, group in _groups(problem):
        inside = np.flatnonzero(np.isin(group.source_rows, selection.indices))
        cost = math.nan
        if len(inside) == group.problem.k:
            cost = transport(group.problem, inside).cost
        allowed = 2 * tolerance + _SUMS * cost
        if not abs(cost - selection.group_costs[label]) <= allowed:
            wrong.append(str(label))
    if problem.groups:
        yield Check("the groups cost what is written", not wrong, ", ".join(wrong))


def _cost_of_plan(selection: Selection, problem: Problem) -> tuple[float, float]:
    """What the plan costs, and how far rounding may put that off."""
    import numpy as np

    from uniproto.certificate.bound import extreme_costs

    plan = selection.plan
    found, tolerance = 0.0, 0.0
    with np.errstate(all="ignore"):  # a plan that somebody has edited can hold anything
        for place, row in enumerate(selection.indices):
            part = slice(plan.indptr[place], plan.indptr[place + 1])
            costs = problem.costs.exact_block(np.array([row]), plan.indices[part])
            least, most = (extreme_costs(problem.costs, costs, side)[0] for side in (-1, 1))
            found += float(costs[0] @ plan.data[part])
            tolerance += float((most - least) @ plan.data[part])
    return found, tolerance + _SUMS * found


def _gains(
    manifest: dict[str, Any], selection: Selection, problem: Problem, slack: float
) -> Iterator[Check]:
    """Whether the gains fit the costs of these rows; not for shards, which have gains of their own.

    `_picks` compares the gains of small selections one by one.
    """
    from uniproto.selection.saved_record import gain_errors

    if manifest["arguments"].get("engine") != "ray":
        errors = gain_errors(selection, problem, slack)
        yield Check("the gains can be those of these rows", not errors, "; ".join(errors))


def _picks(manifest: dict[str, Any], selection: Selection, problem: Problem) -> Iterator[Check]:
    """Whether the options on record lead to these rows, where finding out takes a moment.

    Polishing and a time budget end by the clock, the multilevel search adds up in an order that
    hangs on the number of cores; approximate lists and shards have their own picks.
    """
    import numpy as np

    from uniproto.select import run_method

    options = argparse.Namespace(**_NO_OPTIONS | manifest["arguments"])
    method = chosen_method(options)
    by_clock = options.polish or options.seconds is not None or options.search == "multilevel"
    alike = not by_clock and options.engine == "local" and options.lists == "exact"
    m, n = selection.shape
    if not alike or m * n > _REPEATED_ENTRIES or selection.k > _REPEATED_ROWS:
        return
    again = run_method(problem, method, progress=False)
    if _is_found_together(selection.notes) and set(again.indices) != set(selection.indices):
        # Another machine may round differently, and a search of many trials then end elsewhere.
        as_good = selection.cost <= again.cost * (1 + _OPTIMUM)
        yield Check(
            "the options on record lead to nothing better",
            as_good,
            f"{again.cost:.10g} on this machine",
        )
        return
    different = np.flatnonzero(again.indices != selection.indices)
    off = 4 * problem.costs.rounding + _SUMS * problem.costs.ceiling
    claim = "the options on record lead to these rows"
    if len(different):
        first = different[0]
        # Of two rows that add the same, another machine may round the other one up.
        is_tie = bool(abs(again.gains[first] - selection.gains[first]) <= off)
        found = f"row {again.indices[first]} at rank {first + 1}"
        found += " adds the same" if is_tie else ""
        yield Check(claim, is_tie and method.name in _GREEDY, found)
    else:
        yield Check(claim, True)
        yield Check(
            "and to these gains and weights",
            bool((np.abs(again.gains - selection.gains) <= off).all())
            and np.allclose(again.weights, selection.weights, rtol=1e-6, atol=0),
        )


def _is_found_together(notes: dict[str, Any]) -> bool:
    """Whether rows are those of the thorough search, in some group at least."""
    parts = [part for part in notes.values() if isinstance(part, dict)]
    return any(part.get("search") == "thorough" for part in [notes, *parts])


def _certificate(
    manifest: dict[str, Any], selection: Selection, problem: Problem, slack: float
) -> Iterator[Check]:
    from uniproto.certificate.bound import proven_bound
    from uniproto.certificate.certificate import SHIFTED
    from uniproto.certificate.row_bounds import bound_by_rows

    certificate = selection.certificate
    if selection.proof is not None:
        yield _optimum(manifest, selection, problem, slack)
    if certificate is None:
        return
    prices, bound = certificate.prices, certificate.lower_bound
    found = f"{bound:.10g} written"
    try:
        if problem.m * problem.n <= _PROVEN_ENTRIES:
            proven = proven_bound(problem, prices, least=False)
        else:  # in double precision it would take hours
            proven = bound_by_rows(problem, prices)
            slack = max(slack, _BOUND * bound)
            found += f", compared to {_BOUND:.1%} in single precision"
    except OverflowError:
        proven = -math.inf
    yield Check(
        f"no choice of {problem.k} rows can be below the lower bound: the prices prove it",
        bound <= proven + slack,
        f"{found}, {proven:.10g} proven",
    )
    yield Check("the lower bound is not above the cost", bound <= selection.cost)
    record = manifest["certificate"]
    gap = certificate.gap if math.isfinite(certificate.gap) else None
    yield Check(
        "the gap is that of the cost and the bound",
        _same(record["gap"], gap)
        and _same(record["absolute_gap"], certificate.absolute_gap)
        and record["relative"] == (problem.costs.metric not in SHIFTED),
    )


def _optimum(
    manifest: dict[str, Any], selection: Selection, problem: Problem, slack: float
) -> Check:
    """Whether the search on record proves again that no rows cost less, and these cost no more."""
    from uniproto.select import run_method

    method = chosen_method(argparse.Namespace(**_NO_OPTIONS | manifest["arguments"]))
    claim = f"no choice of {problem.k} rows costs less: the same search proves it again"
    if manifest["arguments"].get("engine") == "ray" or problem.groups:
        return Check(claim, False, "no search over all rows at once is on record")
    again = run_method(problem, method, progress=False)
    if again.proof is None:
        return Check(claim, False, "it ended without a proof")
    same = abs(again.cost - selection.cost) <= _OPTIMUM * again.cost + slack
    found = f"{selection.cost:.10g} written, {again.cost:.10g} proven"
    return Check(claim, same, found)


def _sums(selection: Selection) -> Check:
    """What must hold of every selection; learned weights can be checked no further."""
    from uniproto.selection.saved_record import require_sums

    claim = "its numbers are those of a selection"
    try:
        require_sums(selection)
    except ValueError as error:
        return Check(claim, False, str(error))
    return Check(claim, True)


def _groups(problem: Problem) -> list[tuple[Any, Group]]:
    """The groups, by their labels as a manifest writes them."""
    from uniproto.runs.records import plain

    return [(plain(group.label), group) for group in problem.groups]


def _same(said: Any, found: Any, share: float = _SUMS) -> bool:
    """Equal, or as near as numbers computed on another machine are."""
    if isinstance(said, float) and isinstance(found, float):
        return math.isclose(said, found, rel_tol=share)
    if isinstance(said, dict) and isinstance(found, dict):
        return said.keys() == found.keys() and all(
            _same(said[name], found[name], share) for name in said
        )
    if isinstance(said, list) and isinstance(found, list):
        return len(said) == len(found) and all(
            _same(one, other, share) for one, other in zip(said, found, strict=True)
        )
    return bool(said == found)

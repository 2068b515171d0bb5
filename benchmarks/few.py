"""Few prototypes of many rows: ours and other libraries' choices, judged by their exact costs.

Every contender chooses in a process of its own, after a warm-up, and is ended when it takes too
long. Where the size of its sample can follow a time, it also gets the time that we get: the sample
is doubled, or halved, as far as the clock allows. Further parts measure how our time grows with the
number of rows, the exact cost of given prototypes, and certificates.

Finished lines are saved in a journal next to the report. A later run takes them from there where
machine, limit and library are still the same; for ours, where no source file has changed.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    ROOT,
    FailedError,
    MissingDataError,
    Report,
    Rows,
    Spent,
    UnfinishedError,
    in_fresh_process,
    in_limited_process,
    measured,
    median,
)
from benchmarks.few_contenders import CONTENDERS, OURS, PEERS, Contender, Question
from benchmarks.few_problems import (
    LARGE,
    MILLION,
    MNIST,
    MNIST_MANY,
    PROBLEMS,
    QUICK_PROBLEMS,
    SMALL,
    Data,
    Problem,
    mixture_5,
)
from uniproto.runs.journal import Journal

TITLE = "few prototypes of many rows: our methods and other libraries"
LIMIT = 300.0  # processor seconds of a process
_START = 30.0  # processor seconds for Python, data and warm-up, beyond a time that is given
_WARM_UP = OURS["uniproto"].warm_up
_SEED = 0  # of every contender; repetitions differ in the rows they choose from
_GROWTH = (50_000, 100_000, 200_000, 400_000, 800_000)

_REACH_COST = {SMALL: 1.88, LARGE: 1.81, MNIST: 0.2295, MNIST_MANY: 0.16435}
_REACH_SECONDS = {LARGE: 5.0, MILLION: 30.0, MNIST: 5.0}
_REACH_GAP = {  # on which device, and in how many seconds
    SMALL: (0.04, "cpu", 15.0),
    LARGE: (0.035, "cpu", 90.0),
    MILLION: (0.06, "cuda", 60.0),
}
_REACH_MEMORY_GB, _REACH_UNBALANCED = 2.0, 0.92
_REACH_GROWTH, _REACH_COST_SECONDS = 1.3, 5.0

Row = dict[str, Any]


def run(report: Report, quick: bool, part: str = "") -> None:
    """Measure the parts whose names hold the text (or match the pattern) `part`."""
    with (
        tempfile.TemporaryDirectory(prefix="uniproto-few-") as folder,
        Journal(report.file.with_suffix(".jsonl"), "finished lines") as journal,
    ):
        few = Few(report, journal, Path(folder), part)
        if quick:
            few.compare_all(QUICK_PROBLEMS)
            few.growth((1_000, 2_000), k=5)
            few.exact_cost(QUICK_PROBLEMS[0])
            few.certificate(QUICK_PROBLEMS[0], 0.1, "cpu", 2.0)
        else:
            few.compare_all(PROBLEMS)
            few.growth(_GROWTH, k=50)
            few.exact_cost(MILLION)
            for problem, reach in _REACH_GAP.items():
                few.certificate(problem, *reach)
    _write_csv(report)


class Few:
    """One run. `line` measures what the journal does not have."""

    def __init__(self, report: Report, journal: Journal, folder: Path, part: str) -> None:
        self.report, self.journal, self.folder, self.part = report, journal, folder, part
        self._files: dict[Data, Path] = {}
        self._unfinished: dict[tuple[str, int | None], list[tuple[Problem, float]]] = {}

    # --- contenders ---

    def compare_all(self, problems: tuple[Problem, ...]) -> None:
        for problem in problems:
            try:
                self.compare(problem)
            except MissingDataError as error:
                self._unavailable(str(problem), str(error))

    def compare(self, problem: Problem) -> None:
        """All contenders on one problem."""
        found: dict[str, list[Row]] = {}
        for name, contender in CONTENDERS.items():
            rows: dict[int | None, Row | None] = {}
            for size in contender.sizes:
                if size is not None and size >= problem.data.n:
                    size = None  # all rows
                if size not in rows:
                    rows[size] = self.chosen(problem, name, size, LIMIT)
            broken = any(row is not None and "unavailable" in row for row in rows.values())
            if contender.first_size is not None and not broken:
                self._grow_sample(problem, name, contender.first_size, rows)
            found[name] = [row for row in rows.values() if row]
        self._compare_costs(problem, found)

    def _grow_sample(
        self, problem: Problem, name: str, size: int, rows: dict[int | None, Row | None]
    ) -> None:
        """The largest sample, by factors of two, that can be chosen from in the problem's time."""

        def fits(size: int) -> bool:
            if size not in rows:
                rows[size] = self.chosen(problem, name, size, problem.seconds + _START)
            row = rows[size]
            return row is not None and "cost" in row and _seconds(row) <= problem.seconds

        while size >= problem.data.n:
            size //= 2
        if fits(size):
            while 2 * size < problem.data.n and fits(2 * size):
                size *= 2
        else:
            while size // 2 >= 4 * problem.k and not fits(size // 2):
                size //= 2

    def chosen(self, problem: Problem, name: str, size: int | None, limit: float) -> Row | None:
        """A contender's line; None where it is not asked for."""
        what = f"{problem}: {name}" + ("" if size is None else f", size {size:,}")

        def choose_and_judge() -> Row:
            self._require_hope(problem, name, size, limit)
            file = self.rows_file(problem.data)
            spent, rows = in_limited_process(limit, choose, file, problem, name, size)
            try:
                judging, cost = in_limited_process(2 * LIMIT, cost_of, file, problem, rows)
            except UnfinishedError as error:
                raise FailedError(f"its cost: {error}") from error
            return {"cost": cost, **asdict(spent), "cost_seconds": judging.wall_seconds}

        library = CONTENDERS[name].library
        row = self.line(what, choose_and_judge, library=library, size=size, limit=limit)
        if row is not None and "unfinished" in row:
            self._unfinished.setdefault((name, size), []).append((problem, limit))
        return row

    def _require_hope(self, problem: Problem, name: str, size: int | None, limit: float) -> None:
        """Do not wait for a contender that did not finish a smaller problem."""
        for smaller, longer in self._unfinished.get((name, size), []):
            fewer = smaller.data.n <= problem.data.n and smaller.k <= problem.k
            if fewer and longer >= limit:
                raise UnfinishedError(f"not tried, as it did not finish {smaller}")

    def _compare_costs(self, problem: Problem, found: dict[str, list[Row]]) -> None:
        """The goals, and our cost relative to the lowest of the peers that took no more time."""
        own = next((row for row in found["uniproto"] if "cost" in row), None)
        if own is None:
            return
        if problem in _REACH_COST:
            self._at_most(f"{problem}: cost", own["cost"], _REACH_COST[problem])
        if problem in _REACH_SECONDS:
            seconds = own["wall_seconds"] + own["cost_seconds"]
            reach = _REACH_SECONDS[problem]
            self._at_most(f"{problem}: seconds to the rows and their cost", seconds, reach)
        if problem == MILLION:
            memory = f"{problem}: memory beyond the data, GB"
            self._at_most(memory, own["peak_gb"], _REACH_MEMORY_GB)
        seconds = max(problem.seconds, _seconds(own))
        for balances in (True, False):
            peers = [name for name in PEERS if CONTENDERS[name].balances == balances]
            costs = [
                row["cost"]
                for name in peers
                for row in found[name]
                if "cost" in row and _seconds(row) <= seconds
            ]
            if not costs:
                continue
            # A peer that was not tried might have been the best.
            all_tried = all(
                found[name] and not any("unavailable" in row for row in found[name])
                for name in peers
            )
            kind = "that balances" if balances else "that does not balance"
            reach = 1.0 if balances else _REACH_UNBALANCED
            self._at_most(
                f"{problem}: cost relative to the best peer {kind}, in {seconds:.3g} s",
                own["cost"] / min(costs),
                reach if problem == MILLION and all_tried else None,
            )

    # --- ours alone ---

    def growth(self, sizes: tuple[int, ...], k: int) -> None:
        """Processor seconds per row, which a busy machine does not change, as rows double."""
        per_row = []
        for n in sizes:
            problem = Problem(mixture_5(n), k, seconds=LIMIT)
            row = self.line(f"growth: {problem}", partial(self._repeated, problem), limit=LIMIT)
            if row and "processor_seconds" in row:
                per_row.append(row["processor_seconds"] / n)
        if len(per_row) == len(sizes):
            growth = max(per_row) / per_row[0]
            self._at_most("growth: time per row relative to the fewest", growth, _REACH_GROWTH)

    def _repeated(self, problem: Problem) -> Row:
        file = self.rows_file(problem.data)
        runs = [
            in_limited_process(LIMIT, choose, file, problem, "uniproto", None)[0] for _ in range(3)
        ]
        return {
            "wall_seconds": median([spent.wall_seconds for spent in runs]),
            "processor_seconds": median([spent.processor_seconds for spent in runs]),
            "peak_gb": max(spent.peak_gb for spent in runs),
        }

    def exact_cost(self, problem: Problem) -> None:
        """The exact cost of rows that were given: random ones."""

        def solve() -> Row:
            rows = np.random.default_rng(_SEED).choice(problem.data.n, problem.k, replace=False)
            spent, cost = in_limited_process(
                LIMIT, cost_of, self.rows_file(problem.data), problem, rows.tolist()
            )
            return {"cost": cost, **asdict(spent)}

        what = f"exact cost of given rows: {problem}"
        row = self.line(what, solve, limit=LIMIT)
        if row and "wall_seconds" in row:
            self._at_most(f"{what}, seconds", row["wall_seconds"], _REACH_COST_SECONDS)

    def certificate(self, problem: Problem, gap: float, device: str, seconds: float) -> None:
        """The gap that can be proven in the seconds given to picks and certificate together."""

        def certify() -> Row:
            file = self.rows_file(problem.data)
            return in_limited_process(2 * LIMIT, certified, file, problem, device, seconds)

        what = f"certificate: {problem}, {device}"
        row = self.line(what, certify, limit=seconds)
        if row and "gap" in row:
            self._at_most(f"{what}: gap", row["gap"], gap)
            self._at_most(f"{what}: seconds", row["wall_seconds"], seconds)

    # --- lines ---

    def line(
        self, what: str, measure: Callable[[], Row], *, library: str = "uniproto", **facts: Any
    ) -> Row | None:
        """A line of the report, from the journal or measured now; None where not asked for."""
        if not fnmatch(what, f"*{self.part}*"):
            return None
        version = _version(library)
        if version is None:
            return self._unavailable(what, f"{library} is not installed")
        machine = self.report.content["machine"]
        key = {
            "what": what,
            **facts,
            "library": library,
            "version": version,
            "cpu": machine["cpu"],
            "cores": machine["cores"],
        }
        for entry in self.journal.entries:
            if entry["key"] == key:
                row = entry["row"]
                break
        else:
            load = os.getloadavg()[0]
            try:
                row = measure()
            except UnfinishedError as error:
                row = {"unfinished": str(error)}
            except FailedError as error:
                return self._unavailable(what, str(error))
            row |= {"load": round(load, 2), "library": f"{library} {version}"}
            self.journal.append({"key": key, "row": row})
        self.report.row(what, **facts, **row)
        return row

    def _unavailable(self, what: str, reason: str) -> Row:
        """A line that is tried again in a later run."""
        self.report.row(what, unavailable=reason)
        return {"unavailable": reason}

    def rows_file(self, data: Data) -> Path:
        """The rows as a file, so that the processes that read them hold nothing else."""
        if data not in self._files:
            file = self.folder / f"{len(self._files)}.npy"
            in_fresh_process(write_rows, data, file)
            self._files[data] = file
        return self._files[data]

    def _at_most(self, what: str, reached: float, reach: float | None) -> None:
        goal = None if reach is None else f"≤ {reach:g}"
        self.report.figure(what, reached, goal, reach is not None and reached <= reach)


def _seconds(row: Row) -> float:
    """Seconds without those spent waiting for a busy machine."""
    return min(row["wall_seconds"], row["processor_seconds"])


# --- in a process of its own --------------------------------------------------------------------


def write_rows(data: Data, file: Path) -> None:
    np.save(file, data.rows())


def choose(file: Path, problem: Problem, name: str, size: int | None) -> tuple[Spent, list[int]]:
    """What a contender's choice took, and the rows."""
    contender = CONTENDERS[name]
    question = _question(file, problem)
    _warm_up(contender, question)
    spent, chosen = measured(contender.choose, question, size)
    rows = chosen.tolist()
    if len(set(rows)) != problem.k:
        raise ValueError(f"did not return {problem.k} different rows")
    return spent, rows


def _warm_up(contender: Contender, question: Question) -> None:
    """Load libraries and compiled loops."""
    n, k = contender.warm_up
    small = Question(question.rows[:n], k, question.metric, question.seed, seconds=0.5)
    contender.choose(small, None)


def cost_of(file: Path, problem: Problem, rows: list[int]) -> tuple[Spent, float]:
    """What the exact cost of these rows took, and the cost."""
    import uniproto

    question = _question(file, problem)
    n, k = _WARM_UP
    uniproto.cost(question.rows[:n], range(k), metric=question.metric)
    return measured(lambda: uniproto.cost(question.rows, rows, metric=question.metric))


def certified(file: Path, problem: Problem, device: str, seconds: float) -> Row:
    """A selection, then its certificate in the time that is left."""
    import uniproto

    question = _question(file, problem)

    def select(rows: Rows, k: int, seconds: float) -> Any:
        selection = uniproto.select(
            rows, k, metric=question.metric, compute=uniproto.Compute(device=device), progress=False
        )
        left = max(1.0, seconds - selection.details.timings["pick"])
        selection.certify(seconds=left, progress=False)
        return selection

    n, k = _WARM_UP
    select(question.rows[:n], k, 1.0)
    spent, selection = measured(select, question.rows, problem.k, seconds)
    found = selection.certificate
    bound = {"cost": found.cost, "lower_bound": found.lower_bound, "gap": found.gap}
    return {**bound, **asdict(spent)}


def _question(file: Path, problem: Problem) -> Question:
    return Question(np.load(file), problem.k, problem.data.metric, _SEED, problem.seconds)


# --- versions and files -------------------------------------------------------------------------


@cache
def _version(library: str) -> str | None:
    """The version of a library, None where it is missing; of ours, a digest of its sources."""
    if library == "uniproto":
        digest = hashlib.sha256()
        for file in sorted((ROOT / "src").rglob("*.py")):
            digest.update(file.read_bytes())
        return digest.hexdigest()[:12]
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _write_csv(report: Report) -> None:
    """The lines of the report as a table."""
    rows = report.content["rows"]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with report.file.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(rows)

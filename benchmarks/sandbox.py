"""Programs a second behind the sandbox's walls, on two processors."""

from __future__ import annotations

import os
import resource

from benchmarks.common import MissingDataError, Report, median, timed

TITLE = "model-written programs, each in a sandbox of its own, two at a time on two processors"
_SIMPLE = "eggs = 16 - 3 - 4\nprint(eggs * 2)"
_PROGRAMS = {
    "arithmetic": _SIMPLE,
    "math and fractions": "import math\nfrom fractions import Fraction\nprint(Fraction(1, 3))",
    "numpy": "import numpy as np\nprint(np.linalg.solve([[3, 1], [1, 2]], [9, 8]))",
    "sympy": "from sympy import symbols, solve\nx = symbols('x')\nprint(solve(x**2 - 2, x))",
    "exception": "print(1 / 0)",
}
_COUNTS = {"numpy": 20, "sympy": 10}
_PROCESSORS = 2
_REPEATS = 3


def run(report: Report, quick: bool) -> None:
    """One row per kind of program: programs a second, and processor time each."""
    from uniproto.lm.judging.sandbox import containment

    how = containment()
    if how is None:
        raise MissingDataError("this system offers no containment, so no program may be run")
    report.note(containment=how)
    given = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(given)[:_PROCESSORS])
    try:
        rates = {name: _rate(report, name, quick) for name in _PROGRAMS}
    finally:
        os.sched_setaffinity(0, given)
    rate = rates["arithmetic"]
    report.figure("simple programs a second, 2 processors", rate, "at least 20", rate >= 20)


def _rate(report: Report, name: str, quick: bool) -> float:
    from uniproto.lm.judging.sandbox import run_programs

    count = 4 if quick else _COUNTS.get(name, 100)
    rates, spent = [], []
    for _ in range(1 if quick else _REPEATS):
        before = _processor_seconds()
        seconds, results = timed(run_programs, [_PROGRAMS[name]] * count, 60.0)
        spent.append((_processor_seconds() - before) / count)
        rates.append(count / seconds)
        expected = "error" if name == "exception" else "ok"
        if any(result.status != expected for result in results):
            raise RuntimeError(f"{name}: {results}")
    report.row(
        name,
        programs_per_second=median(rates),
        processor_ms_each=1000 * median(spent),
        all_rates=rates,
    )
    return median(rates)


def _processor_seconds() -> float:
    """Used so far by this process and those it has waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)

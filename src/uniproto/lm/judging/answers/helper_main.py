"""The program of a helper process: `helper_main.py algebra` or `helper_main.py reader`.

Requests come on the standard input as JSON, one per line: formulas as trees, never as text to
evaluate, and texts that are only looked at. Nothing a model wrote is run here.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_BYTES = 2 << 30
DIGITS = 40
# What SymPy raises where it has no answer, or none within its memory.
_NO_VERDICT = (
    ArithmeticError,
    ValueError,
    TypeError,
    NotImplementedError,
    MemoryError,
    RecursionError,
)


def main(task: str) -> None:
    """Answer requests until the input ends."""
    answer = {"algebra": algebra, "reader": reader}[task]()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), flush=True)


def reader() -> Callable[..., str | None]:
    """Answers requests `[name of a reader, arguments, named arguments]`."""
    sys.path.insert(0, str(Path(__file__).parents[4]))  # where this package is, installed or not
    from uniproto.lm.judging.answers import extract_answer, program_answer
    from uniproto.lm.judging.answers.programs import extract_program

    readers = {each.__name__: each for each in (extract_answer, extract_program, program_answer)}
    return lambda name, arguments, named: readers[name](*arguments, **named)


def algebra() -> Callable[..., bool | None]:
    """Answers requests `[question, left, right, seconds]`; None where SymPy does not know."""
    limit_memory()
    import sympy

    questions = {"same": same, "proportional": proportional}

    def answer(question: str, left: list[Any], right: list[Any], seconds: float) -> bool | None:
        # The judge kills a late helper; if the judge itself was killed, this alarm does.
        _set_alarm(2 * seconds + 1)
        try:
            return questions[question](sympy, build(sympy, left), build(sympy, right))
        except _NO_VERDICT:
            return None
        finally:
            _set_alarm(0)

    return answer


def _set_alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def limit_memory() -> None:
    """No request may take the machine's memory, write a file or leave a core."""
    try:
        import resource
    except ImportError:  # not a Unix: the time limit is the only one
        return
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def build(sympy: Any, tree: list[Any]) -> Any:
    """The SymPy expression of a tree."""
    head, atom, parts = tree
    built = [build(sympy, part) for part in parts]
    if head in ("number", "decimal"):
        return sympy.Rational(atom)
    if head == "symbol":
        return sympy.Symbol(atom)
    if head == "constant":
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}[atom]
    operations = {"sum": sympy.Add, "product": sympy.Mul, "power": sympy.Pow}
    if head in operations:
        return operations[head](*built)
    names = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "ln": "log", "abs": "Abs"}
    return getattr(sympy, names.get(atom, atom))(*built)


def same(sympy: Any, left: Any, right: Any) -> bool:
    """Whether the two are equal for every value of their variables."""
    difference = left - right
    if difference == 0 or sympy.simplify(difference) == 0:
        return True
    decided = difference.equals(0)
    if decided is not None:
        return bool(decided)
    # No proof either way: equal to this many digits at points without pattern is taken as equal.
    return vanishes(sympy, difference)


def proportional(sympy: Any, left: Any, right: Any) -> bool:
    """Whether one is a constant multiple, not zero, of the other: the same equation = 0."""
    ratio = sympy.simplify(left / right)
    return bool(ratio.is_number and ratio.is_finite and not ratio.is_zero)


def vanishes(sympy: Any, expression: Any) -> bool:
    """Whether an expression is zero, to many digits, at a few points."""
    names = sorted(expression.free_symbols, key=str)
    for turn in range(3):
        point = {
            name: sympy.Rational(7 + 5 * at + 3 * turn, 11 + 2 * turn) * (-1) ** turn
            for at, name in enumerate(names)
        }
        value = expression.evalf(DIGITS, subs=point)
        if not value.is_number or abs(value) > sympy.Float(10) ** (-DIGITS // 2):
            return False
    return True


if __name__ == "__main__":
    main(sys.argv[1])

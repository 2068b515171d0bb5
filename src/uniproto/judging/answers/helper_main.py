"""The process that asks SymPy whether two formulas are the same.

It is run as a script, apart from the program that judges, so that it can be stopped: formulas come
as trees on the standard input, one request a line, never as text to evaluate.
"""

from __future__ import annotations

import json
import signal
import sys
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


def main() -> None:
    """Answer requests ``{"question", "left", "right", "seconds"}`` until the input ends."""
    limit_memory()
    import sympy

    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if hasattr(signal, "setitimer"):
            # The judge kills a late worker; if the judge itself was killed, this alarm does.
            signal.setitimer(signal.ITIMER_REAL, 2 * request["seconds"] + 1)
        try:
            left, right = (build(sympy, request[side]) for side in ("left", "right"))
            question = same if request["question"] == "same" else proportional
            verdict: bool | str = question(sympy, left, right)
        except _NO_VERDICT as error:
            verdict = f"undecided: {type(error).__name__}"
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(verdict), flush=True)


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
    if head == "sum":
        return sympy.Add(*built)
    if head == "product":
        return sympy.Mul(*built)
    if head == "power":
        return sympy.Pow(*built)
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
    main()

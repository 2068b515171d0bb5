"""Errors and warnings, each with a remedy.

Every message has the same form: the parameter, the constraint, what was received, what to do.
"""

from __future__ import annotations

import difflib
import math
import operator
import sys
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from numbers import Real
from typing import Any, ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")
_LONGEST_SHOWN = 500  # characters of the received value that a message shows


class UniprotoError(Exception):
    """Base of every error this package raises on purpose.

    Attributes:
        parameter: the name of the parameter it is about; None where it is about no single one. The
            message begins with it.

    >>> error = InvalidInputError("must be at least 1.", parameter="k")
    >>> error.parameter, str(error)
    ('k', "'k' must be at least 1.")
    """

    def __init__(self, message: object = "", *, parameter: str | None = None) -> None:
        super().__init__(str(message) if parameter is None else f"{quoted(parameter)} {message}")
        self.parameter = parameter


class InvalidInputError(UniprotoError, ValueError):
    """An argument breaks its constraint."""


class WrongTypeError(InvalidInputError, TypeError):
    """An argument for which Python itself would raise a `TypeError`."""


class InfeasibleError(UniprotoError, ValueError):
    """Every argument is valid, but together they have no solution."""


class TooFewApartError(InfeasibleError):
    """Fewer rows than requested are far enough apart."""


class SolverError(UniprotoError, RuntimeError):
    """A numerical solver did not converge to a reliable result."""


class MissingExtraError(UniprotoError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs the optional dependencies of the extra {extra!r}, which are not "
            f"installed. Install them in a copy of the repository: pip install '.[{extra}]'"
        )
        self.extra = extra


@contextmanager
def needing(purpose: str, extra: str) -> Iterator[None]:
    """Turn an import error into one that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(purpose, extra) from error


class InputFileError(UniprotoError, OSError):
    """A file cannot be read, or does not hold what it should."""

    @classmethod
    def of(cls, path: object, error: UniprotoError, remedy: str = "") -> InputFileError:
        """The error about a parameter, with the file in which it was found.

        >>> InputFileError.of("a.csv", InvalidInputError("must be 1.", parameter="k")).parameter
        'k'
        """
        found = cls(f"{path}: {error}{remedy and ' '}{remedy}")
        found.parameter, found.__cause__ = error.parameter, error
        return found


class ChangedInputError(InputFileError):
    """An input file or a model is no longer the one that a result was made from."""


class DataWarning(UserWarning):
    """A warning about the data: a column that decides alone, an unusual encoding, …"""


def warn_of_data(
    text: str, category: type[Warning] = DataWarning, through: tuple[str, ...] = ()
) -> None:
    """Warn at the line of the caller's own code, however deep the call stack.

    `through` are packages that have called this one for the caller.
    """
    frame, level = sys._getframe(1), 2
    ours = ("uniproto", *through)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in ours:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


class OutputError(UniprotoError, OSError):
    """A result cannot be written."""


def invalid(parameter: str, constraint: str, received: object, remedy: str) -> InvalidInputError:
    """Build the one message form used for bad arguments.

    >>> str(invalid("k", "must be at least 1", 0, "Ask for one prototype or more."))
    "'k' must be at least 1. Got 0 instead. Ask for one prototype or more."
    """
    shown = str(received)
    if len(shown) > _LONGEST_SHOWN:
        shown = f"{shown[:_LONGEST_SHOWN]} …"
    return InvalidInputError(f"{constraint}. Got {shown} instead. {remedy}", parameter=parameter)


_flags: Mapping[str, str] = {}


@contextmanager
def called(flags: Mapping[str, str]) -> Iterator[None]:
    """Name parameters by these options of the running command in errors and warnings.

    >>> with called({"min_distance": "--min-distance"}):
    ...     print(quoted("min_distance"), quoted("rows"))
    --min-distance 'rows'
    """
    global _flags
    before, _flags = _flags, flags
    try:
        yield
    finally:
        _flags = before


def quoted(parameter: str) -> str:
    """A parameter's name in messages: in quotes, or as the option of a command.

    A field of a value, such as features.weights, is the option of that name.

    >>> print(quoted("target_weights"))
    'target_weights'
    """
    if parameter.startswith("-"):
        return parameter
    return _flags.get(parameter.rpartition(".")[2]) or repr(parameter)


def asking(python: str, option: str, value: str = "") -> str:
    """How to request something: in Python, or by an option of the running command.

    >>> asking("features=Columns(ignore=['id'])", "ignore", "id")
    "features=Columns(ignore=['id'])"
    >>> with called({"ignore": "--ignore"}):
    ...     asking("features=Columns(ignore=['id'])", "ignore", "id")
    '--ignore id'
    """
    flag = _flags.get(option)
    return python if flag is None else f"{flag} {value}".rstrip()


def printable(text: object) -> str:
    """Escape control characters and those that reorder text, for printing in a terminal.

    Joiners stay, because scripts and emoji need them.

    >>> print(printable("a\\x1b[2Jb"))
    a\\x1b[2Jb
    """
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if unicodedata.category(char) in _UNPRINTABLE and char not in _JOINERS
        else char
        for char in str(text)
    )


_UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"


def require_name(parameter: str, received: object, valid: Collection[str]) -> None:
    """Check that a value is one of these names.

    >>> require_name("metric", "cosine", ("cosine", "l1"))
    """
    # Arrays and the like are not names, and cannot be compared with them.
    if not isinstance(received, str) or received not in valid:
        raise unknown_name(parameter, received, valid)


def unknown_name(parameter: str, received: object, valid: Iterable[str]) -> InvalidInputError:
    """Reject a misspelt name and offer the nearest valid one."""
    names = sorted(valid)
    near = difflib.get_close_matches(str(received).lower(), names, n=1, cutoff=0.4)
    remedy = f"Did you mean {near[0]!r}?" if near else "Use one of those names."
    return invalid(parameter, f"must be one of {', '.join(names)}", repr(received), remedy)


def known_keywords(
    function: Callable[_Given, _Returned], also: Iterable[str] = ()
) -> Callable[_Given, _Returned]:
    """Refuse unknown keywords of a function, and offer the nearest known one.

    `also` are those that it passes on.

    >>> @known_keywords
    ... def choose(rows, k, *, target_weights=None): ...
    >>> choose([], 3, weights=[1])
    Traceback (most recent call last):
    uniproto.errors.WrongTypeError: 'weights' is no parameter of choose(). Did you mean
    'target_weights'?
    """
    own = [each for each in signature(function).parameters.values() if each.name != "self"]
    names = [each.name for each in own if each.kind is not each.VAR_KEYWORD] + list(also)
    own_name = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        for name in kwargs.keys() - set(names):
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            remedy = f"Did you mean {near[0]!r}?" if near else f"It takes {', '.join(names)}."
            raise WrongTypeError(f"is no parameter of {own_name}(). {remedy}", parameter=name)
        return function(*args, **kwargs)

    return checked


def require_int(
    parameter: str, value: object, least: int = 1, *, too_small: str | None = None
) -> int:
    """Check that a value is an integer of at least `least`; True and False are not.

    >>> require_int("k", 3)
    3
    >>> require_int("k", True)
    Traceback (most recent call last):
    uniproto.errors.InvalidInputError: 'k' must be a whole number. Got True instead. Pass an
    integer.
    """
    try:
        number = as_index(value)
    except TypeError:
        raise invalid(
            parameter, "must be a whole number", repr(value), "Pass an integer."
        ) from None
    if number < least:
        remedy = too_small or f"Pass {least} or more."
        raise invalid(parameter, f"must be at least {least}", number, remedy)
    return number


def require_seconds(parameter: str, value: object, instead: str = "") -> float:
    """Check a number of seconds; `instead` is what else the caller would have taken.

    >>> require_seconds("certify", -1, "None or ")
    Traceback (most recent call last):
    uniproto.errors.InvalidInputError: 'certify' must be None or a positive number of seconds.
    Got -1 instead. Try 60.
    """
    limit = finite_number(value)
    if isinstance(value, bool) or not limit > 0:
        constraint = f"must be {instead}a positive number of seconds"
        raise invalid(parameter, constraint, repr(value), "Try 60.")
    return limit


def finite_number(value: Any) -> float:
    """The value of a real number, or NaN for anything else.

    >>> finite_number(10**400) > 0, finite_number("2") > 0, finite_number(2) > 0
    (False, False, True)
    """
    if not isinstance(value, Real):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def require_positive(parameter: str, value: object, below: float = math.inf) -> None:
    """Check a number above 0, and below a limit if there is one.

    >>> require_positive("alpha", 2.0, below=1)
    Traceback (most recent call last):
    uniproto.errors.InvalidInputError: 'alpha' must lie between 0 and 1, not 2.0.
    """
    if isinstance(value, bool) or not 0 < finite_number(value) < below:
        what = "be positive and finite" if below == math.inf else f"lie between 0 and {below}"
        raise InvalidInputError(f"must {what}, not {value!r}.", parameter=parameter)


def as_index(value: Any) -> int:
    """Like `operator.index`, but True and False are refused.

    >>> as_index(3)
    3
    """
    if type(value).__name__ in ("bool", "bool_"):  # bool_ is NumPy 1's, which counts as 0 or 1
        raise TypeError(f"{value} is not a number")
    return operator.index(value)

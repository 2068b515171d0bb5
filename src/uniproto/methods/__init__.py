"""Selection methods, one file each, behind one contract."""

from __future__ import annotations

from uniproto.errors import invalid, unknown_name
from uniproto.methods.contract import Method, Picks
from uniproto.methods.random import Random
from uniproto.methods.uniproto import Stochastic, UniProto

METHODS: dict[str, type[Method]] = {method.name: method for method in (UniProto, Random)}


def as_method(method: str | Method) -> Method:
    """A method object from itself, or from its name with default options."""
    if isinstance(method, str):
        if method not in METHODS:
            raise unknown_name("method", method, METHODS)
        return METHODS[method]()
    if not hasattr(method, "pick"):
        raise invalid(
            "method",
            "must be a method's name or a method object",
            repr(method),
            "Pass for example uniproto.UniProto(plan='resolve').",
        )
    return method


__all__ = ["METHODS", "Method", "Picks", "Random", "Stochastic", "UniProto", "as_method"]

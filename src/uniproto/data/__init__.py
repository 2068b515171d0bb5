"""Reading what users have: arrays, tables, files."""

from __future__ import annotations

from uniproto.runtime.late import late_names

__getattr__ = late_names(__name__, {})

"""How long a search goes on: by counted work, or by the clock where seconds are given."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from uniproto.methods.thorough.table import Table


@dataclass(frozen=True)
class Limit:
    """Reached once a table has done so much work, or at a moment of `time.perf_counter`."""

    table: Table
    work: float = math.inf
    deadline: float = math.inf

    @property
    def is_reached(self) -> bool:
        return self.table.work >= self.work or time.perf_counter() >= self.deadline

    def part(self, share: float) -> Limit:
        """The limit of a share of what is left."""
        done, now = self.table.work, time.perf_counter()
        return Limit(
            self.table, done + share * (self.work - done), now + share * (self.deadline - now)
        )

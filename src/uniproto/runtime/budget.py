"""How much longer to search: counted work, which is the same on every machine, and a deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

Check = Callable[[], bool]


class Budget:
    """A limit on work, in units of two to three nanoseconds, and a deadline.

    Work decides what a search finds, so that a seed leads to the same rows everywhere; the
    deadline, a moment of `time.perf_counter`, only ever ends it earlier.

    >>> budget = Budget(work=10)
    >>> budget.spend(4)
    >>> budget.is_spent, budget.part(5)(), budget.part(7)()
    (False, True, True)
    >>> budget.spend(6)
    >>> budget.is_spent
    True
    """

    def __init__(self, work: float = math.inf, deadline: float = math.inf) -> None:
        self.work, self.deadline, self.done = work, deadline, 0.0

    @classmethod
    def of_seconds(cls, seconds: float | None, work: float = math.inf) -> Budget:
        """A budget that ends after a number of seconds."""
        return cls(work, math.inf if seconds is None else time.perf_counter() + seconds)

    def spend(self, work: float) -> None:
        """Count work that was done."""
        self.done += work

    @property
    def is_late(self) -> bool:
        return time.perf_counter() >= self.deadline

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.perf_counter()

    @property
    def is_spent(self) -> bool:
        return self.done >= self.work or self.is_late

    def part(self, work: float) -> Check:
        """A function that returns whether the budget lasts and less than `work` was done since."""
        limit = min(self.done + work, self.work)
        return lambda: self.done < limit and not self.is_late


class Gains:
    """Tracks progress: the best cost so far, and when it was reached.

    Searching pays as long as the latest share of all work has lowered the cost by more than next
    to nothing.
    """

    def __init__(self, budget: Budget, *, share: float, least: float, work: float = 0.0) -> None:
        self._budget, self._share, self._least, self._floor = budget, share, least, work
        self._begun = budget.done
        self._costs: list[tuple[float, float]] = []

    def note(self, cost: float) -> None:
        """Note a cost, if it is the lowest so far."""
        if not self._costs or cost < self._costs[-1][1]:
            self._costs.append((self._budget.done, cost))

    @property
    def pays(self) -> bool:
        """Whether to continue."""
        done = self._budget.done
        if done - self._begun < self._floor or not self._costs:
            return True
        since = self._begun + (1 - self._share) * (done - self._begun)
        before = [cost for at, cost in self._costs if at <= since]
        if not before:
            return True
        return before[-1] - self._costs[-1][1] > self._least * abs(self._costs[-1][1])

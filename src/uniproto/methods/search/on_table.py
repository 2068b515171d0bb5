"""The search of a small problem, on a table of its costs, and the proof of what it found."""

from __future__ import annotations

from uniproto.methods.search.exact_plan import Rows
from uniproto.methods.search.exchanges import Exchanges
from uniproto.methods.search.prove import Prover
from uniproto.methods.search.stage import Beginning, Stage
from uniproto.methods.search.table import SolvedSet, Table
from uniproto.methods.search.table_plan import TablePlan, greedy_rows
from uniproto.problem.allowed import Allowed

_FLOOR = 6e7  # work before which gains are not asked for
_MET, _BEST_MET = 8, 3  # sets met while prices are found: solved, and begun from
_HOPELESS = 1.02  # times the best cost: sets that are not worth improving


class OnTable:
    """Where the search begins, and the proof that goes with it."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.table = stage, Table(stage.problem, stage.budget)
        self.prover = Prover(self.table)
        first = greedy_rows(self.table) if stage.begun is None else stage.begun
        self.plan = plan = TablePlan(self.table, first)
        stage.keep(plan.rows, plan.cost, "start")
        self.beginning = Beginning(plan, plan, self._met(), _FLOOR, plan.medoids_from)

    def _met(self) -> list[Rows]:
        """Rows that prices which bound every choice lead to, the best first."""
        if not Allowed(self.stage.problem).is_free:
            return []
        table, plan = self.table, self.plan
        met = self.prover.prices_from(plan.set)[1][-_MET:]
        solved = [SolvedSet(members, table.solve(members)) for members in met]
        solved.sort(key=lambda found: found.cost)
        good = [found for found in solved[:_BEST_MET] if found.cost < _HOPELESS * plan.solved.cost]
        return [table.rows[found.members] for found in good]

    def prove(self) -> None:
        """Prove that no rows are better than the best, or find better ones on the way."""
        stage, plan = self.stage, self.plan
        plan.start(stage.rows)
        best = plan.set
        for _ in range(2):
            stage.proof, better = self.prover.prove(best)
            if better is not best:
                plan.start(self.table.rows[better.members])
            if better is best or stage.proof is not None:
                break
            Exchanges(plan, Allowed(stage.problem), stage.budget.part(stage.work)).descend_all()
            best = plan.set
        stage.keep(plan.rows, plan.cost, "proof")

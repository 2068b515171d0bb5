"""Progress: a bar where a person watches, a line now and then in a log, nothing on request."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uniproto.features.embedded import ReadItem, embed
from uniproto.geometry.costs import Costs
from uniproto.geometry.cpu_lists import CpuLists
from uniproto.problem.problem import Problem
from uniproto.runtime import progress
from uniproto.runtime.progress import Progress, unseen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Time that passes only while the thread that shows progress waits.

    After each wait but the last, the next thing happens.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *happenings: Callable[[], Any]) -> None:
        self.now, self.happenings = 0.0, list(happenings)
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr("tqdm.std.time", lambda: self.now)

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        if not self.happenings:
            return True
        self.happenings.pop(0)()
        return False


def show(
    monkeypatch: pytest.MonkeyPatch,
    stderr: io.StringIO,
    total: int,
    *happenings: Callable[[progress._Stage], Any],
) -> str:
    """What a stage writes while those things happen to it."""
    monkeypatch.setattr(sys, "stderr", stderr)
    clock = Clock(monkeypatch, *(lambda each=each: each(stage) for each in happenings))
    stage = progress._Stage("picks", total)
    stage.over = clock  # type: ignore[assignment]
    (stage.draw_bar if stderr.isatty() else stage.print_lines)()
    return stderr.getvalue()


def nothing(stage: progress._Stage) -> None:
    """One more wait."""


def test_a_bar_where_a_person_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert Progress().shown
    assert not Progress(shown=False).shown


def test_no_bar_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not Progress().shown
    assert Progress(shown=True).shown


def test_a_bar_with_the_time_left_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    said = show(monkeypatch, Terminal(), 4, lambda stage: stage.advance(2), nothing)
    assert "picks:  50%" in said
    assert "[00:01<00:01" in said  # elapsed<left


def test_the_bar_moves_in_a_long_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    said = show(monkeypatch, Terminal(), 4, *[nothing] * 6)
    seen = re.findall(r"\[(\d\d:\d\d)<", said)
    assert seen[-1] == "00:04"  # counted from the beginning, not from when the bar came up
    assert len(set(seen)) > 3


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert show(monkeypatch, Terminal(), 4) == ""


def test_lines_tell_the_share_done_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    said = show(monkeypatch, io.StringIO(), 2000, nothing, lambda stage: stage.advance(499.6))
    assert said.splitlines() == [
        "uniproto: picks: 0% done (0 of 2,000), 30 s passed",
        "uniproto: picks: 25% done (500 of 2,000), 1 min passed, about 3 min left",
    ]


def test_work_goes_on_where_nobody_reads_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise ValueError("I/O operation on closed file.")

    assert show(monkeypatch, Closed(), 4, nothing, nothing) == ""


@pytest.mark.parametrize(("shown", "total"), [(False, 4), (None, 0)])
def test_quiet_and_empty_work_starts_no_thread(shown: bool | None, total: int) -> None:
    before = threading.active_count()
    with Progress(shown).stage("picks", total) as advance:
        assert advance is unseen
        assert threading.active_count() == before


def test_a_thread_tells_of_a_stage_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real thread: each line that it prints is an event, not a moment."""
    printed = threading.Event()

    class Log(io.StringIO):
        def flush(self) -> None:
            printed.set()

    monkeypatch.setattr(progress, "_LINES_APART", 0.01)
    monkeypatch.setattr(sys, "stderr", log := Log())
    before = threading.active_count()
    with suppress(KeyError), Progress().stage("picks", 1):
        printed.wait()
        raise KeyError
    assert "picks: 0% done" in log.getvalue()
    assert threading.active_count() == before


def test_without_stderr_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    for shown in (None, True):
        with Progress(shown).stage("picks", 4) as advance:
            advance(4)


def _costs(rows: int, columns: int) -> Costs:
    draw = np.random.default_rng(0)
    return Problem(draw.normal(size=(rows, 3)), draw.normal(size=(columns, 3))).with_k(2).costs


def test_neighbour_lists_move_before_the_first_piece_is_done() -> None:
    """One piece may be all rows: each of its tiles, against each block of columns, counts."""
    told: list[float] = []
    rows = np.arange(2000, dtype=np.intp)
    CpuLists().index(_costs(2000, 40_000)).nearest(rows, 5, told.append)
    assert len(told) > 2
    assert sum(told) == pytest.approx(2000)


class Counted(Progress):
    """What it is told, and of which stage."""

    def __init__(self) -> None:
        super().__init__(shown=False)
        self.told: list[float] = []
        self.stages: list[tuple[str, int]] = []

    def stage(self, name: str, total: int) -> Any:
        self.stages.append((name, total))
        return nullcontext(lambda steps, note="": self.told.append(steps))


class Model:
    name = identity = "ones"
    batch_size = 4

    def read(self, items: Any, is_known: Any) -> list[ReadItem]:
        return [ReadItem(item.encode(), item) for item in items]

    def vectors(self, inputs: Any) -> Any:
        return np.ones((len(inputs), 3), np.float32)


def test_embedding_tells_of_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = Counted()
    monkeypatch.setattr("uniproto.features.embedded.Progress", lambda shown: bars)
    texts = map(str, range(64))
    embed(texts, 64, Model, "texts", cache=False)
    assert bars.stages == [("embedding texts", 64)]
    assert sum(bars.told) == 64
    assert len(bars.told) >= 16

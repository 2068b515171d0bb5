"""Progress: a bar where a person watches, a line now and then in a log, nothing on request."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uniproto.geometry.costs import Costs
from uniproto.geometry.cpu_lists import CpuLists
from uniproto.geometry.lists import lists_of
from uniproto.problem.problem import Problem
from uniproto.runtime import progress
from uniproto.runtime.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# Not fixtures: pytest puts its own stderr in place again before a test begins.
def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    return found


def a_log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A file to which lines go every tenth of a second."""
    found = io.StringIO()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(progress, "_LINES_APART", 0.1)
    return found


def wait_for(words: str, log: io.StringIO) -> None:
    """Until a busy machine's other thread has written them."""
    end = time.monotonic() + 30
    while words not in log.getvalue() and time.monotonic() < end:
        time.sleep(0.01)


def test_a_bar_where_a_person_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    a_terminal(monkeypatch)
    assert Progress().shown
    assert not Progress(shown=False).shown


def test_no_bar_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not Progress().shown
    assert Progress(shown=True).shown


def test_a_bar_with_the_time_left_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with Progress().stage("picks", 4) as advance:
        advance(2)
        assert terminal.getvalue() == ""
        time.sleep(1.7)
    assert "picks:  50%" in terminal.getvalue()
    assert "<" in terminal.getvalue()  # elapsed<left


def test_the_bar_moves_within_three_seconds_of_a_long_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = a_terminal(monkeypatch)
    with Progress().stage("picks", 4):
        time.sleep(2.8)
        seen = re.findall(r"\[(\d\d:\d\d)<", terminal.getvalue())
    assert seen[-1] in (
        "00:02",
        "00:03",
    )  # counted from the beginning, not from when the bar came up
    assert len(set(seen)) > 1


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with Progress().stage("picks", 4) as advance:
        advance(4)
    assert terminal.getvalue() == ""


def test_lines_tell_the_share_done_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(monkeypatch)
    with Progress().stage("embedding texts", 2000) as advance:
        wait_for("0% done", log)
        advance(499.6)
        wait_for("25% done", log)
    first, *_, last = log.getvalue().splitlines()
    assert first == "uniproto: embedding texts: 0% done (0 of 2,000), 0 s passed"
    words = r"uniproto: embedding texts: 25% done \(500 of 2,000\), \d+ s passed, about \d+ s left"
    assert re.fullmatch(words, last)


def test_lines_are_half_a_minute_apart() -> None:
    assert progress._LINES_APART == 30


def test_quiet_work_writes_nothing_and_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(monkeypatch)
    before = threading.active_count()
    with Progress(shown=False).stage("picks", 4):
        assert threading.active_count() == before
        time.sleep(0.25)
    assert log.getvalue() == ""


def test_work_goes_on_where_nobody_reads_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(monkeypatch)
    with Progress().stage("picks", 4) as advance:
        log.close()
        time.sleep(0.25)
        advance(4)


def test_the_thread_ends_with_an_error() -> None:
    before = threading.active_count()
    with pytest.raises(KeyError), Progress().stage("picks", 4):
        raise KeyError
    assert threading.active_count() == before


def test_without_stderr_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with Progress().stage("picks", 4) as advance:
        advance(4)
    with Progress(shown=True).stage("picks", 4) as advance:
        advance(4)


def test_a_stage_of_one_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(monkeypatch)
    with Progress().stage("picks", 1):
        wait_for("picks: 0% done", log)
    assert "picks: 0% done" in log.getvalue()


def test_a_stage_without_steps_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(monkeypatch)
    with Progress().stage("picks", 0):
        time.sleep(0.25)
    assert log.getvalue() == ""


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


def test_lists_are_told_of_once() -> None:
    class Counted(Progress):
        total = 0.0

        def stage(self, name: str, total: int) -> Any:
            def advance(steps: float) -> None:
                self.total += steps

            return nullcontext(advance)

    bars = Counted(False)
    lists_of(CpuLists(), _costs(500, 900), np.arange(500), 4, 2**20, bars)
    assert bars.total == pytest.approx(500)


_LONG_EMBEDDING = """
import sys, time
import numpy as np
from uniproto.features.embedded import Readable, embed
from uniproto.runtime import progress

progress._LINES_APART = 0.2

class Slow:
    name = identity = "slow"
    batch_size = 4

    def read(self, items, is_known):
        return [Readable(item.encode(), item) for item in items]

    def vectors(self, inputs):
        time.sleep(0.06)
        return np.ones((len(inputs), 3), np.float32)

embed(map(str, range(64)), 64, Slow(), cache=False, on_error="fail", progress=None, what="texts")
"""


def test_embedding_writes_lines_to_a_log(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LONG_EMBEDDING], capture_output=True, text=True, check=True,
        cwd=tmp_path,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert len(lines) >= 3
    assert all(line.startswith("uniproto: embedding texts: ") for line in lines)
    shares = [int(re.findall(r"(\d+)% done", line)[0]) for line in lines]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]
    assert "left" in lines[-1]

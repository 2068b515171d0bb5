"""The first call: one line while code is compiled, none once it is cached, wherever that is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core import event

from uniproto.runtime import compiling

LOOP = """
from uniproto.runtime.compiling import njit

@njit(cache=True)
def total_of(values):
    total = 0.0
    for value in values:
        total += value
    return total
"""


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    script = folder / "uniproto_loop.py"
    if not script.exists():
        script.write_text(LOOP)
    code = (
        "import sys; sys.stderr.isatty = lambda: True\n"  # the line is for people who wait
        "import numpy as np, uniproto_loop; print(uniproto_loop.total_of(np.ones(3)))"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_a_line_while_compiling_and_none_from_the_cache(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    first, second = (run(tmp_path, NUMBA_CACHE_DIR=cache) for _ in range(2))
    assert first.stdout == second.stdout == "3.0\n"
    assert first.stderr.count("compiling once (about 20 s)") == 1
    assert second.stderr == ""


def test_code_is_cached_privately_where_nothing_else_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = compiling._private_folder()
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)  # somebody else could put code there
    assert compiling._private_folder() is None
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert compiling._private_folder() is None


def test_without_any_place_code_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def numbas(**options: bool) -> object:
        calls.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'f': no locator available for file 'x'")
        return lambda function: function

    monkeypatch.setattr(compiling.numba, "njit", numbas)
    monkeypatch.setattr(compiling, "_private_folder", lambda: None)
    assert compiling.njit(cache=True, nogil=True)(len) is len
    assert [call.pop("cache", False) for call in calls] == [True, False]
    assert calls[0] == calls[1]
    assert calls[0]["nogil"]


def test_the_clock_of_work_stands_still_while_code_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=100.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(compiling, "time", clock)

    class Slow(event.Listener):
        def on_start(self, event: object) -> None:
            clock.now += 7.0

        def on_end(self, event: object) -> None:
            pass

    @compiling.njit(cache=False)
    def add_one(value):
        return value + 1.0

    begin = compiling.working_time()
    with event.install_listener("numba:compile", Slow()):
        assert add_one(2.0) == 3.0
    assert clock.now == 107.0
    assert compiling.working_time() == begin
    clock.now += 5.0
    assert compiling.working_time() == begin + 5.0

"""A certificate within so many seconds: one meaning in `select`, `path` and on the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import uniproto
from uniproto.cli import main
from uniproto.errors import InvalidInputError, require_seconds

POINTS = np.random.default_rng(3).normal(size=(60, 4))
BAD = [False, np.False_, 0, -1, math.nan, math.inf, 10**400, "30", [30], np.array([30.0]), 1j]


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The limits that searches for a bound were given."""
    import uniproto.certificate.ascent

    given: list[float | None] = []
    search = uniproto.certificate.ascent.certify

    def listened(*arguments: Any, time_limit: float | None, **options: Any) -> Any:
        given.append(time_limit)
        return search(*arguments, time_limit=time_limit, **options)

    monkeypatch.setattr(uniproto.certificate.ascent, "certify", listened)
    return given


@pytest.mark.parametrize("value", BAD, ids=repr)
def test_all_else_is_refused(value: Any) -> None:
    with refused("seconds", InvalidInputError):
        require_seconds("seconds", value, "None or ")
    selection = uniproto.select(POINTS, 2)
    with refused("seconds", InvalidInputError):
        selection.certify(seconds=value)
    assert selection.certificate is None


@pytest.mark.parametrize(("value", "limit"), [(True, None), (np.True_, None), (9, 9.0)])
def test_the_limit_reaches_the_search(
    value: Any, limit: float | None, limits: list[float | None]
) -> None:
    assert uniproto.select(POINTS, 2, certify=value).certificate is not None
    assert uniproto.path(POINTS, [2], certify=value, seeds=0).rows[0]["lower_bound"] > 0
    assert limits == [limit, limit]


@pytest.mark.parametrize(("words", "limit"), [(["--certify"], None), (["--certify", "9"], 9.0)])
def test_on_the_command_line(
    words: list[str],
    limit: float | None,
    limits: list[float | None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool, out = tmp_path / "pool.npy", tmp_path / "out"
    np.save(pool, POINTS)
    assert main(["select", str(pool), "-k", "3", *words, "-o", str(out)]) == 0
    assert limits == [limit]
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["arguments"]["certify"] == (limit or True)
    for command in (["verify"], ["certify", "--seconds", "1"], ["verify"], ["report"]):
        assert main([command[0], str(out), *command[1:]]) == 0
    page = (out / "report.html").read_text()
    assert ("--certify 9.0" if limit else "--certify") in page
    capsys.readouterr()


def test_resuming_does_not_depend_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from uniproto.selection.selection import Selection

    pool, out = tmp_path / "pool.npy", tmp_path / "out"
    np.save(pool, POINTS)
    command = ["select", str(pool), "-k", "3", "--checkpoint", "--quiet", "-o", str(out)]
    command += ["--method", "greedy"]

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Selection, "certify", interrupted)
        assert main([*command, "--certify"]) == 130
    assert main([*command, "--certify", "5"]) == 0
    assert json.loads((out / "manifest.json").read_text())["resumed_from_pick"] == 3


def test_what_an_interrupted_certificate_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pool, out = tmp_path / "pool.npy", tmp_path / "out"
    np.save(pool, POINTS)
    assert main(["select", str(pool), "-k", "3", "--quiet", "-o", str(out)]) == 0
    before = (out / "manifest.json").read_bytes()

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("uniproto.certificate.ascent.certify", interrupted)
    assert main(["certify", str(out)]) == 130
    told = capsys.readouterr().err
    assert told == f"uniproto: interrupted; no new bound was written, and {out} stays as it was.\n"
    assert (out / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
@pytest.mark.parametrize("words", [["select", "pool.npy", "-k", "2"], ["path", "pool.npy"]])
def test_bad_seconds_on_the_command_line(
    words: list[str], value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*words, "--certify", value, "-o", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match="2"):
        main(command)
    assert f"must be a number of seconds above 0, not '{value}'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

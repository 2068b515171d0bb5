"""Slips on the command line: each is told in a line or two, with the name that was meant."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from uniproto.cli import build_parser, main
from uniproto.selection.selection import Selection

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def files(inside: Path) -> None:
    np.save("pool.npy", RNG.normal(size=(12, 3)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["selekt"], "Did you mean 'select'?"),
        (
            ["select", "pool.npy", "-k", "2", "-o", "out", "--metrik", "l1"],
            "Did you mean --metric?",
        ),
        (["select", "pool.npy", "-k", "2", "--output=out", "-o", "out"], "Did you mean --out?"),
        (["select", "pool.npy", "-k", "two", "-o", "out"], "-k: must be a whole number, not 'two'"),
        (["select", "pool.npy", "-k", "2", "-o", "out", "--reg", "x"], "must be a number, not 'x'"),
        (["finetune", "--data", "d", "-o", "out", "--mode", "sources"], "Did you mean 'source'?"),
        (["select", "", "-k", "2", "-o", "out"], "POOL must name a file or a folder."),
        (["select", "pool.npy", "-k", "2", "-o", ""], "-o/--out must name a file or a folder."),
        (["verify"], "See 'uniproto verify --help'."),
    ],
)
def test_a_slip_is_told_in_a_line_or_two(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert words in said
    assert said.startswith("uniproto: error: ")
    assert said.count("\n") == 2


def test_every_option_is_explained() -> None:
    """Words for each, beyond its default; and one name for where results go."""
    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        command.complete()
        for action in command._actions:
            described = re.sub(r"\(.*\)", "", action.help or "").strip()
            assert len(described) > 3, f"{name} {action.option_strings}"
        if {"-o", "--out"} & set(command._option_string_actions):
            assert {"-o", "--out"} <= set(command._option_string_actions), name


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_does_not_matter(closed: str) -> None:
    command = f"{sys.executable} -m uniproto select pool.npy -k 2 -o out {closed}"
    assert subprocess.run(["sh", "-c", command], timeout=120).returncode == 0
    assert Selection.load("out").k == 2


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_cannot_be_written_is_told() -> None:
    command = f"{sys.executable} -m uniproto select pool.npy -k 2 -o out >/dev/full"
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=120)
    assert ended.returncode == 2
    assert ended.stderr.startswith("uniproto: error: standard output: it could not be")
    assert ended.stderr.count("\n") == 1
    assert Selection.load("out").k == 2

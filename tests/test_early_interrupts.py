"""Ctrl-C while a command loads: real processes, interrupted at moments of their loading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# As installers write it.
SCRIPT = (
    "import sys\nfrom uniproto.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
)
# A process signals itself when it is about to load a module: at that moment, on any machine.
# Whoever runs the tests may have Ctrl-C switched off, as a job in the background has.
SITE = """
import os, signal, sys

class Moment:
    def find_spec(self, name, *_):
        if name == os.environ["MOMENT"]:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

ignored = os.environ["MOMENT"].startswith("ignored ")
os.environ["MOMENT"] = os.environ["MOMENT"].removeprefix("ignored ")
signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
sys.meta_path.insert(0, Moment())
"""
# Of the package, of NumPy, of SciPy, and of the command line.
MOMENTS = ("uniproto.errors", "numpy.version", "scipy.sparse", "uniproto.methods")
LATER = ("argparse", "uniproto.cli.parser", "uniproto.cli.compare")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "uniproto"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


def interrupted(start: list[str], moment: str) -> tuple[int, list[str]]:
    """The exit status and what was said, of a process interrupted when it loads a module."""
    done = subprocess.run(
        [sys.executable, *start],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "MOMENT": moment},
    )
    return done.returncode, done.stderr.splitlines(keepends=True)


@pytest.mark.parametrize("moment", [*MOMENTS, *LATER])
def test_a_command_that_is_interrupted_while_it_loads_says_so(script: Path, moment: str) -> None:
    for start in (["-m", "uniproto"], [str(script)]):
        status, said = interrupted([*start, "select", "nothing.npy", "-k", "2"], moment)
        assert (status, len(said)) == (130, 1), said
        assert said[0].startswith("uniproto: interrupted; ")


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        (["finetune", "--model", "./no", "--data", "no.jsonl"], "torch.nn"),
        (["finetune", "--model", "./no", "--data", "no.jsonl"], "transformers.utils"),
        (["pretrain", "--data", "no.txt"], "jax._src.core"),
    ],
)
def test_libraries_that_are_being_loaded_cannot_swallow_it(
    script: Path, tmp_path: Path, command: list[str], moment: str
) -> None:
    for package in (moment.partition(".")[0], "optax", "peft"):
        pytest.importorskip(package, reason="needs the extras 'train' and 'jax'")
    status, said = interrupted([str(script), *command, "-o", str(tmp_path / "out")], moment)
    assert (status, said) == (130, ["uniproto: interrupted; nothing was written.\n"])


def test_programs_that_import_the_package_get_a_keyboard_interrupt(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import uniproto")
    for start in (["-c", "import uniproto"], [str(program)], ["-m", "uniproto.cli.streams"]):
        status, said = interrupted(start, "scipy.sparse")
        assert (status, said[-1]) == (-signal.SIGINT, "KeyboardInterrupt\n")


def test_a_command_with_interrupts_switched_off_keeps_them_so(script: Path) -> None:
    assert interrupted([str(script), "--version"], "ignored uniproto.errors") == (0, [])


def test_after_loading_interrupts_are_as_ever() -> None:
    looked_at = (
        "import sys; sys.argv[0] = 'uniproto'; import signal, uniproto.cli; "
        "sys.exit(7 if signal.getsignal(signal.SIGINT) is signal.default_int_handler else 8)"
    )
    assert interrupted(["-c", looked_at], "never") == (7, [])

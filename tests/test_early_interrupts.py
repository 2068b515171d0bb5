"""Ctrl-C while a command loads: real processes, interrupted at moments of their loading."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

# As installers write it.
SCRIPT = (
    "import sys\nfrom uniproto.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
)
# What has just been loaded: of the package, of NumPy, of SciPy, and of the command line.
MOMENTS = ("uniproto.early_interrupts", "uniproto.errors", "numpy.version", "scipy.sparse")
LATER = ("uniproto.methods", "uniproto", "argparse", "uniproto.cli.parser", "uniproto.cli.compare")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "uniproto"
    path.write_text(SCRIPT)
    return path


def interrupted(start: list[str], moment: str) -> tuple[int, list[str]]:
    """The exit status and what was said, of a process interrupted when it has loaded a module."""
    running = subprocess.Popen(
        [sys.executable, "-X", "importtime", *start],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    said, sent = [], False
    for line in running.stderr:
        if not line.startswith("import time:"):
            said.append(line)
        elif line.split("|")[-1].strip() == moment and not sent:
            running.send_signal(signal.SIGINT)
            sent = True
    running.stderr.close()
    status = running.wait(timeout=60)
    assert sent, f"{moment} was never loaded"
    return status, said


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
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    start = ["-c", ignoring, "-X", "importtime", str(script), "--version"]
    assert interrupted(start, "uniproto.errors") == (0, [])


def test_after_loading_interrupts_are_as_ever() -> None:
    looked_at = (
        "import sys; sys.argv[0] = 'uniproto'; import signal, uniproto.cli; "
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    done = subprocess.run([sys.executable, "-c", looked_at], capture_output=True, timeout=60)
    assert done.stdout.strip() == b"True"

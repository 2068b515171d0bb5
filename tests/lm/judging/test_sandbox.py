"""What honest programs get, what callers are told, and what holds without walls."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.refusals import refused

from uniproto.errors import InvalidInputError, UniprotoError
from uniproto.lm.judging import sandbox
from uniproto.lm.judging.sandbox import (
    ContainmentError,
    ProgramResult,
    containment,
    environment,
    run_program,
    run_programs,
)
from uniproto.lm.judging.sandbox.inside import seccomp
from uniproto.lm.judging.sandbox.process import run_trusted

needs_walls = pytest.mark.skipif(
    containment() is None, reason="this system offers no containment: nothing may be run"
)
HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"}
GENERIC = "/usr/include/asm-generic/unistd.h"  # the numbers of aarch64


def printed(code: str, timeout: float = 30.0) -> str:
    result = run_program(code, timeout)
    assert result.status == "ok", result
    return result.output


# --- honest programs ----------------------------------------------------------------------------


@needs_walls
@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(6 * 7)", "42\n"),
        ("", ""),
        ("print('π ≈ 3.14', end='')", "π ≈ 3.14"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "\ufffd"),
        ("print(1)\nexit()\nprint(2)", "1\n"),
        ("if __name__ == '__main__':\n    quit(0)", ""),
        ("print(sorted(n for n in globals() if not n.startswith('__')))", "[]\n"),
        ("import os; print(dict(os.environ), os.listdir())", "{} []\n"),
        ("import platform; print(platform.node())", "sandbox\n"),
        ("import sys; print(sys.argv, sys.stdin.read() == '')", "['/program.py'] True\n"),
        ("open('a', 'w').write('b'); print(open('a').read())", "b\n"),
        ("import tempfile; print(tempfile.TemporaryFile('w').write('abc'))", "3\n"),
        ("import asyncio; print(asyncio.run(asyncio.sleep(0, 5)))", "5\n"),
        ("import shutil; open('a', 'w').close(); print(shutil.copy2('a', 'b'))", "b\n"),
        ("import os; os.makedirs('a/b'); os.rename('a/b', 'c'); print(len(os.listdir()))", "2\n"),
        ("import signal; signal.alarm(9); print(signal.alarm(0) > 0)", "True\n"),
        ("import time; time.sleep(0.01); print(time.process_time() > 0)", "True\n"),
        ("import random, secrets, uuid; print(len(str(uuid.uuid4())))", "36\n"),
        ("import sqlite3; print(sqlite3.connect(':memory:').execute('select 6*7').fetchall())",
         "[(42,)]\n"),
        ("import resource; print(resource.getrusage(0).ru_maxrss > 0)", "True\n"),
        ("import socket; a, b = socket.socketpair(); a.send(b'hi'); print(b.recv(9))", "b'hi'\n"),
        ("import os, subprocess, multiprocessing, queue; print(os.cpu_count() > 0)", "True\n"),
        ("from concurrent.futures import *\nprint(*ThreadPoolExecutor(4).map(abs, [-1]))", "1\n"),
        ("class A: pass\nimport pickle; print(type(pickle.loads(pickle.dumps(A()))))",
         "<class '__main__.A'>\n"),
        ("import sys; print(*(m for m in ('numpy', 'uniproto', 'ctypes') if m in sys.modules))",
         "\n"),
        ("print('x' * 65535)", "x" * 65535 + "\n"),
    ],
)  # fmt: skip
def test_an_honest_program(code: str, output: str) -> None:
    assert printed(code) == output


@needs_walls
@pytest.mark.parametrize(
    ("package", "code", "output"),
    [
        ("numpy", "import numpy as np; print(np.linalg.inv(np.eye(1) / 2))", "[[2.]]"),
        ("sympy", "from sympy import *; x = symbols('x'); print(solve(x**2 - 9, x))", "[-3, 3]"),
        ("numpy", "import numpy as np; a = np.random.rand(500, 500); print((a @ a).shape)", "(500"),
        (
            "numpy",
            "import numpy as np; np.save('a', np.arange(3)); print(np.load('a.npy', 'r'))",
            "[",
        ),
        ("sympy", "from sympy import *; x = symbols('x'); print(integrate(exp(x), x))", "exp(x)"),
        ("pandas", "import pandas as pd; print(pd.DataFrame({'a': [1, 2]}).a.sum())", "3"),
        ("networkx", "import networkx as nx; print(nx.path_graph(3).number_of_edges())", "2"),
        ("scipy", "from scipy import integrate; print(round(integrate.quad(abs, 0, 2)[0]))", "2"),
        ("scipy", "from scipy.optimize import brentq; print(brentq(lambda x: x - 2, 0, 9))", "2.0"),
    ],
)
def test_packages_that_programs_import(package: str, code: str, output: str) -> None:
    pytest.importorskip(package)
    assert printed(code).startswith(output)


@needs_walls
def test_no_other_package_is_seen() -> None:
    code = "import os, sys\nfor p in sys.path[3:]: print(*sorted(os.listdir(p)))"
    seen = {name.removesuffix(".libs").removesuffix(".py") for name in printed(code).split()}
    assert seen <= set(environment.PACKAGES)


@needs_walls
def test_the_clock_starts_with_the_program_and_stops_it() -> None:
    result = run_program("print('begun')\nimport time; time.sleep(10**6)", timeout=1.5)
    assert result == ProgramResult("timeout", "begun\n", "still running after 1.5 seconds")


@needs_walls
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("print(41)\nprint(42, end='')\nwhile True: pass", "timeout"),
        ("print(41)\nprint(42, end='')\nimport os; os.kill(os.getpid(), 9)", "killed"),
        ("print(41)\nprint(42, end='')\nimport os; os._exit(1)", "error"),
    ],
)
def test_what_was_printed_before_the_end_is_kept(code: str, status: str) -> None:
    result = run_program(code, timeout=1.0)
    assert (result.status, result.output) == (status, "41\n42")


@needs_walls
def test_an_error_tells_why() -> None:
    result = run_program("print('so far')\n1 / 0")
    assert (result.status, result.output) == ("error", "so far\n")
    assert result.detail.endswith("ZeroDivisionError: division by zero")
    assert len(run_program("raise ValueError('x' * 10**5)").detail) <= environment.DETAIL


@needs_walls
def test_memory_is_limited_where_it_says() -> None:
    code = "import mmap; mmap.mmap(-1, {} << 20); print('had it')"
    assert printed(code.format(800)) == "had it\n"
    assert "Cannot allocate memory" in run_program(code.format(1100)).detail


@needs_walls
def test_many_at_once_in_their_order() -> None:
    codes = [f"print({number})" for number in range(20)]
    codes[7] = "raise SystemExit(1)"
    results = run_programs(codes, timeout=30.0, workers=4)
    assert [r.output for r in results] == [f"{n}\n" if n != 7 else "" for n in range(20)]
    assert [r.status == "ok" for r in results] == [n != 7 for n in range(20)]


@needs_walls
def test_nothing_leaks_in_the_parent() -> None:
    run_program("print(1)")
    opened, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    run_programs(["print(1)", "1/0", "while True: print(1)"], timeout=1.0)
    assert len(os.listdir("/proc/self/fd")) == opened
    assert threading.active_count() == threads


# --- other users, other Pythons -----------------------------------------------------------------

PACKAGE = Path(sandbox.__file__).parents[3]
ELSEWHERE = """
import sys, types
package = types.ModuleType("uniproto")  # without its __init__, which needs what may not be here
package.__path__ = [sys.argv[1]]
sys.modules["uniproto"] = package
from uniproto.lm.judging import sandbox
print(sandbox.containment(), sandbox.run_program(sys.argv[2]), sep="; ")
"""


@pytest.mark.slow
@needs_walls
def test_a_virtual_environment_in_a_temporary_folder_with_an_odd_name(tmp_path: Path) -> None:
    place = tmp_path / "odd näme"
    venv.create(place, symlinks=True)
    packages = next(place.glob("lib/python*/site-packages"))
    (packages / "six.py").write_text("answer = 42")
    (packages / "secret.py").write_text("")
    code = "import os, six; print(six.answer, os.listdir(os.path.dirname(six.__file__)))"
    told = subprocess.run(
        [place / "bin" / "python", "-c", ELSEWHERE, PACKAGE, code], capture_output=True, text=True
    )
    assert "output=\"42 ['six.py']\\n\"" in told.stdout, told


# --- refusing, and trusting ---------------------------------------------------------------------


@pytest.fixture
def _no_walls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A system where every way fails, each for its reason."""

    def fail(code: str, timeout: float, method: str) -> ProgramResult:
        raise ContainmentError(f"no {method} today")

    sandbox._offered.cache_clear()
    monkeypatch.setattr(sandbox, "run_contained", fail)
    yield
    sandbox._offered.cache_clear()


@pytest.mark.usefixtures("_no_walls")
def test_without_containment_nothing_runs_unless_trusted(tmp_path: Path) -> None:
    assert containment() is None
    code = f"open({str(tmp_path / 'new')!r}, 'w').close()"
    with pytest.raises(UniprotoError, match="offers no containment") as refused:
        run_program(code)
    for word in ("no user today", "max_user_namespaces", "--trust-generated-code", "trust=True"):
        assert word in str(refused.value)
    with pytest.raises(ContainmentError):
        run_programs([code])
    assert not list(tmp_path.iterdir())
    assert run_programs(["print(1)"], timeout=30.0, trust=True) == [ProgramResult("ok", "1\n")]


@needs_walls
def test_trust_weakens_nothing_where_walls_stand(tmp_path: Path) -> None:
    result = run_program(f"print(open({str(tmp_path)!r} + '/a', 'w'))", trust=True)
    assert result.status == "error"


def test_a_trusted_program_has_limits_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other tests leave theirs elsewhere
    code = "import os; print(dict(os.environ), os.listdir(), os.getcwd())"
    result = run_trusted(code, 30.0)
    assert result.status == "ok", result
    assert result.output.startswith("{} [] ")
    assert not Path(result.output.split()[-1]).exists()
    result = run_trusted("print(1, end='')\nwhile True: pass", 1.0)
    assert (result.status, result.output) == ("timeout", "1")
    assert run_trusted("while True: print('flood')", 30.0).status == "killed"
    assert run_trusted("import os; os.abort()", 30.0).status == "killed"
    if sys.platform == "linux":
        assert "MemoryError" in run_trusted("bytearray(1 << 34)", 30.0).detail
    assert not list(tmp_path.iterdir())


def test_a_trusted_program_that_forks_does_not_hold_us_up() -> None:
    code = "import os, time\nif os.fork() == 0: time.sleep(60)\nelse: print('done')"
    assert run_trusted(code, 30.0) == ProgramResult("ok", "done\n")


# --- callers' mistakes, and the parts -----------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf")])
def test_a_bad_timeout(timeout: float) -> None:
    with refused("timeout", InvalidInputError):
        run_program("print(1)", timeout)


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_numbers_of_system_calls(machine: str) -> None:
    """As the kernel's own headers have them."""
    header = Path(HEADERS.get(machine, GENERIC))
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    text = header.read_text()
    found = re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", text)
    numbers = {name: int(number) for name, number in found}
    for name, other in re.findall(r"#define\s+__NR_(\w+)\s+__NR3264_(\w+)", text):
        if other in numbers:  # some exist on 32 bits only
            numbers[name] = numbers[other]
    column = list(seccomp.ARCHITECTURES).index(machine)
    for name, known in {**seccomp.ALLOWED, **seccomp.CHECKED}.items():
        assert numbers.get(name) == known[column], name
    assert numbers["clone3"] == seccomp.CLONE3
    assert numbers["set_mempolicy_home_node"] == seccomp.NEWEST

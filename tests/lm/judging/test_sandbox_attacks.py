"""Every program in attacks/ is contained, as seen from outside."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import select
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.processes import descendants, processes, running

from uniproto.lm.judging import sandbox
from uniproto.lm.judging.sandbox import containment, run_program
from uniproto.lm.judging.sandbox.process import run_trusted

ATTACKS = Path(__file__).parent / "attacks"
X86_ONLY = ("x32", "machine code")
PR_SET_CHILD_SUBREAPER = 36

pytestmark = pytest.mark.skipif(
    containment() is None, reason="this system offers no containment: nothing may be run"
)


def attacks() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """File, name, the statuses it may end with, code."""
    for file in sorted(ATTACKS.glob("*.txt")):
        for part in file.read_text().split("=== ")[1:]:
            head, _, code = part.partition("\n")
            name, _, statuses = head.partition(" | ")
            yield file.stem, name, tuple(statuses.split()), code


ALL = list(attacks())


class Outside:
    """What a program must neither see nor change, and what it left behind."""

    def __init__(self, folder: Path) -> None:
        self.secret = f"secret-{uuid.uuid4().hex}"
        self.canary = f"canary-{uuid.uuid4().hex}"
        home = Path.home() if os.access(Path.home(), os.W_OK) else folder
        self.home = Path(tempfile.mkdtemp(prefix=".uniproto-test-", dir=home))
        self.folder = folder
        for place in (self.home, self.folder):
            (place / self.canary).write_text(self.secret)
        (folder / "module.py").write_text(f"print({self.secret!r})")
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.sockets = [self.tcp]
        abstract = f"\0{self.canary}"
        for family, kind, address in (
            (socket.AF_INET, socket.SOCK_DGRAM, self.tcp.getsockname()),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "socket")),
            (socket.AF_UNIX, socket.SOCK_STREAM, abstract),
            (socket.AF_UNIX, socket.SOCK_DGRAM, f"{abstract}-datagrams"),
        ):
            made = socket.socket(family, kind)
            made.bind(address)
            if kind == socket.SOCK_STREAM:
                made.listen()
            self.sockets.append(made)
        self.before = children()  # of other tests
        self.victim = subprocess.Popen(["sleep", "3600"])
        self.mounts = Path("/proc/self/mountinfo").read_text()
        self.files = self._files()

    def fill_in(self, code: str) -> str:
        known = {
            "HOME": self.home,
            "FOLDER": self.folder,
            "CANARY": self.canary,
            "PORT": self.tcp.getsockname()[1],
            "ABSTRACT": self.canary,
            "VICTIM": self.victim.pid,
            "SURROGATE": "\udc80",
            "NULL": "\0",
        }
        for word, value in known.items():
            code = code.replace(f"@{word}@", str(value))
        return code

    def check(self, shown: str) -> None:
        """Nothing got out, nothing got in, nothing is left."""
        assert "ESCAPED" not in shown
        assert self.secret not in shown
        assert self._files() == self.files
        assert select.select(self.sockets, [], [], 0)[0] == []  # nobody called, nothing came
        assert self.victim.poll() is None
        assert children() - self.before == {self.victim.pid}
        assert Path("/proc/self/mountinfo").read_text() == self.mounts
        assert not list(Path(tempfile.gettempdir()).glob("uniproto-program-*"))

    def _files(self) -> dict[str, str]:
        return {
            str(path): path.read_text() if path.is_file() else ""
            for place in (self.home, self.folder)
            for path in sorted(place.rglob("*"))
        }

    def close(self) -> None:
        for opened in self.sockets:
            opened.close()
        self.victim.kill()
        self.victim.wait()
        (self.home / self.canary).unlink(missing_ok=True)
        self.home.rmdir()


def children() -> set[int]:
    """This process's own; as it adopts orphans, all that programs left behind are among them."""
    return {pid for pid, fields in processes() if int(fields[1]) == os.getpid()}


@pytest.fixture(scope="module")
def _adopting() -> Iterator[None]:
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _adopting: None) -> Iterator[Outside]:
    made = Outside(tmp_path)
    monkeypatch.setenv("UNIPROTO_TEST_SECRET", made.secret)
    # What programs leave behind is looked for where no other test runs programs at the same time.
    monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp(prefix="uniproto-test-"))
    yield made
    made.close()
    Path(tempfile.gettempdir()).rmdir()


@pytest.mark.parametrize(
    ("name", "statuses", "code"),
    [pytest.param(*rest, id=f"{file}: {rest[0]}".replace(" ", "-")) for file, *rest in ALL],
)
def test_attack(name: str, statuses: tuple[str, ...], code: str, outside: Outside) -> None:
    if any(word in name for word in X86_ONLY) and platform.machine() != "x86_64":
        pytest.skip("a trick of x86-64")
    timeout = 0.3 if "timeout" in statuses else 60.0
    result = run_program(outside.fill_in(code), timeout)
    assert result.status in statuses, result
    assert len(result.output) <= 1 << 16
    outside.check(result.output + result.detail)


@pytest.mark.parametrize(
    "name",
    [
        "read the home folder",
        "append to a file elsewhere",
        "a shell command",
        "connect to a port",
        "an abstract socket through a socket pair",
        "reopen descriptors through proc",
    ],
)
def test_the_checks_would_see_an_escape(name: str, outside: Outside) -> None:
    """The same programs without walls: what is checked above is not merely what never happens."""
    code = next(code for _, known, _, code in ALL if known == name)
    result = run_trusted(outside.fill_in(code), 30.0)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        outside.check(result.output + result.detail)


AS_ANOTHER_USER = """
import json, sys, types
package = types.ModuleType("uniproto")  # without its __init__, which needs what may not be here
package.__path__ = [sys.argv[1]]
sys.modules["uniproto"] = package
from uniproto.lm.judging import sandbox
from uniproto.lm.judging.sandbox import containment, run_program
results = [run_program(code, timeout) for code, timeout in json.load(sys.stdin)]
print(json.dumps([containment(), [[r.status, r.output + r.detail] for r in results]]))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")
@pytest.mark.parametrize("file", ["kernel", "sharing", "resources"])
def test_attacks_as_an_ordinary_user(file: str, outside: Outside) -> None:
    """User 65534 with /usr/bin/python3, since the tests' own Python may lie in root's home."""
    python = Path("/usr/bin/python3")
    recent = "import sys; sys.exit(sys.version_info < (3, 10))"
    if not python.exists() or subprocess.run([python, "-c", recent]).returncode:
        pytest.skip("no /usr/bin/python3 of 3.10 or later")
    some = [each for each in ALL if each[0] == file and "numpy" not in each[1]]
    if platform.machine() != "x86_64":
        some = [each for each in some if not any(word in each[1] for word in X86_ONLY)]
    codes = [(outside.fill_in(c), 0.3 if "timeout" in s else 10.0) for _, _, s, c in some]
    told = subprocess.run(
        [python, "-B", "-c", AS_ANOTHER_USER, Path(sandbox.__file__).parents[3]],
        input=json.dumps(codes), user=65534, group=65534, extra_groups=[], cwd="/", env={},
        capture_output=True, text=True,
    )  # fmt: skip
    if "PermissionError" in told.stderr or "ModuleNotFoundError" in told.stderr:
        pytest.skip("the source tree is not readable for others")
    assert told.returncode == 0, told.stderr
    method, results = json.loads(told.stdout)
    assert method == sandbox._METHODS["user"]
    for (_, name, statuses, _), (status, shown) in zip(some, results, strict=True):
        assert status in statuses, (name, status, shown)
        outside.check(shown)


@pytest.mark.slow
def test_nothing_survives_the_death_of_the_parent(outside: Outside) -> None:
    """kill -9 of the evaluator ends launcher, init and program."""
    code = (
        "from uniproto.lm.judging.sandbox import run_program\n"
        "print('begin', flush=True)\n"
        "run_program('while True: pass', timeout=3600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent:
        assert parent.stdout.readline() == b"begin\n"
        wait_until(lambda: len(descendants(parent.pid)) >= 3)
        wait_until(lambda: burns_time(descendants(parent.pid)))
        started = descendants(parent.pid)
        parent.kill()
        parent.wait()
    wait_until(lambda: not running(started))
    for child in children() - outside.before - {outside.victim.pid}:  # adopted, already dead
        os.waitpid(child, 0)
    outside.check("")


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def burns_time(pids: set[int]) -> bool:
    """Whether one of them has used a fifth of a second of processor time: the program runs."""
    ticks = [int(fields[11]) for pid, fields in processes() if pid in pids]
    return max(ticks, default=0) >= os.sysconf("SC_CLK_TCK") / 5

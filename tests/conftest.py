"""What tests of several rooms need."""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from uniproto.methods.search import prove, stage

# The default search may do about a second of work, and look for a proof for another; few tests are
# about either. The marker `usual_effort` is for tests of the search itself.
_LITTLE_EFFORT = 0.02
_WORK_OF_PROOFS = prove._WORK_OF_PRICES, prove._WORK_OF_SETS


def _set_effort(share: float) -> None:
    stage._EFFORT = share
    prove._WORK_OF_PRICES, prove._WORK_OF_SETS = (share * work for work in _WORK_OF_PROOFS)


_set_effort(_LITTLE_EFFORT)

# Programs that tests interrupt inherit this, too: Ctrl-C is off where tests run in the background.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling takes JAX most of its time here: what one test or program of this run has compiled, all
# others find on the disk.
_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
_OF_THIS_RUN = os.getppid() if _IS_WORKER else os.getpid()
_COMPILED = Path(tempfile.gettempdir()) / f"uniproto-compiled-{_OF_THIS_RUN}"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_COMPILED)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

gc.disable()  # until all is collected: what is imported stays

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


# Every change is judged by the same draws; `make test-all` draws anew.
settings.register_profile("same draws", derandomize=True)
if "UNIPROTO_NEW_DRAWS" not in os.environ:
    settings.load_profile("same draws")


# Of a test with more cells than this, the parts try the first, the last and these shares.
_FEW_CELLS = 4
_QUICK_SHARE, _REST_SHARE = 0.1, 0.15

# Examples in the documentation of these modules compile for seconds.
_DEAR_EXAMPLES = tuple(
    f"uniproto.lm.pretraining.{module}."
    for module in ("choose", "gradients", "model", "step", "train")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=("quick", "rest", "all"),
        default="all",
        help="quick: not slow, and some cells of tests with many; rest: what quick leaves out, but "
        "not every cell; all (default)",
    )


def pytest_unconfigure() -> None:
    """Remove what was compiled, once all workers have ended."""
    if not _IS_WORKER:
        shutil.rmtree(_COMPILED, ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> str | None:
    if (part := config.getoption("part")) == "all":
        return None
    return f"part: {part}; of tests with many cells some, by their names"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to another part."""
    if (part := config.getoption("part")) == "all":
        return
    for item in items:
        if item.name.startswith(_DEAR_EXAMPLES):
            item.add_marker("slow")
    quick = {item.nodeid for item in items if not item.get_closest_marker("slow")}
    drawn: set[str] = set()  # cells of the rest
    for cells in _with_many_cells(items):
        few, some = _draw([cell.nodeid for cell in cells])
        quick -= {cell.nodeid for cell in cells} - few
        drawn |= some
    chosen = [
        item
        for item in items
        if (item.nodeid in quick) == (part == "quick")
        and (part == "quick" or item.get_closest_marker("slow") or item.nodeid in drawn)
    ]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of every search for garbage: it stays anyway."""
    gc.freeze()
    gc.enable()


def _with_many_cells(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """The cells of every test that is called with many combinations of arguments, in order."""
    found = defaultdict(list)
    for item in items:
        found[item.nodeid.partition("[")[0]].append(item)
    return [cells for cells in found.values() if len(cells) > _FEW_CELLS]


def _draw(cells: list[str]) -> tuple[set[str], set[str]]:
    """The first, the last and a share for the quick part; another share for the rest."""
    between = sorted(cells[1:-1], key=lambda name: hashlib.md5(name.encode()).digest())
    few, some = (round(share * len(cells)) for share in (_QUICK_SHARE, _REST_SHARE))
    return {cells[0], cells[-1], *between[:few]}, set(between[few : few + some])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """As much work for the default search as users get, where a test is marked so."""
    if item.get_closest_marker("usual_effort"):
        _set_effort(1.0)
    try:
        return (yield)
    finally:
        _set_effort(_LITTLE_EFFORT)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for the test, which runs in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs a command in this process."""
    from uniproto.cli import main

    def command(*arguments: object) -> Ended:
        status = main([str(argument) for argument in arguments])
        return Ended(status, *capsys.readouterr())

    return command


@pytest.fixture
def ends() -> Iterator[None]:
    """Fails what would go on for ever: by processor time, and many times what it takes."""

    def stop(*_: object) -> None:
        raise AssertionError("it has not ended after 20 s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 20.0)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def pretended_gpu(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tensors that believe to be on a GPU; tiles of 48 rows, read back a few at a time."""
    from uniproto.geometry import gpu_lists
    from uniproto.geometry.gpu_lists import GpuIndex, GpuLists

    moved = torch.Tensor.to

    def stay(tensor: Any, *args: Any, **options: Any) -> Any:
        return tensor if args == ("cuda",) else moved(tensor, *args, **options)

    monkeypatch.setattr(torch.Tensor, "to", stay)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a pretended GPU")
    monkeypatch.setattr(gpu_lists, "driver_sees_gpu", lambda: True)
    monkeypatch.setattr(GpuLists, "free_memory", lambda lists: 10**9)
    monkeypatch.setattr(GpuIndex, "_rows_per_tile", lambda index: 48)
    monkeypatch.setattr(gpu_lists, "_pinned_memory", lambda: torch.empty(20_000, dtype=torch.uint8))
    return torch


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A real browser, for the pages we write; where there is none, their tests are skipped.

    Called, it opens a context without a network, in which no scrolling is drawn out: a click
    on a button that is still gliding over the screen would now and then miss it.
    """
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip(
            "no Chromium on this machine: the page is not tested in a browser "
            "(apt install chromium)"
        )
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=path, args=_FLAGS)
        except playwright.Error as error:
            pytest.skip(f"Chromium does not start here: {str(error).splitlines()[0]}")
        yield functools.partial(browser.new_context, offline=True, reduced_motion="reduce")
        browser.close()

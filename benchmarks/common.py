"""What the benchmarks share: data, clocks, fresh processes, and the report they write."""

from __future__ import annotations

import importlib.metadata
import json
import math
import multiprocessing
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
_PATIENCE = 20  # seconds on the clock per processor second, before work counts as stuck

ROOT = Path(__file__).resolve().parent.parent
_LIBRARIES = (
    "numpy",
    "scipy",
    "numba",
    "POT",
    "scikit-learn",
    "kmedoids",
    "apricot-select",
    "submodlib-py",
    "k-means-constrained",
    "ortools",
    "faiss-cpu",
    "onebatch",
    "banditpam",
    "torch",
)


# --- data ---------------------------------------------------------------------------------------


class MissingDataError(Exception):
    """The data a benchmark needs is not there."""


def data_folder() -> Path:
    """Where the published data sets lie."""
    return Path(os.environ.get("UNIPROTO_DATA") or ROOT.parent / "shared" / "data")


def mnist(n: int) -> Rows:
    """The first n of MNIST's 60,000 training pictures, as rows of 784 grey values from 0 to 255."""
    file = data_folder() / "images" / "mnist.npz"
    if not file.exists():
        raise MissingDataError(
            f"MNIST is not at {file}. Set UNIPROTO_DATA to a folder that holds images/mnist.npz."
        )
    with np.load(file) as arrays:
        return arrays["x_train"][:n].reshape(n, -1).astype(np.float32)


def unit_rows(rows: Rows) -> Rows:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def cosine_costs(n: int) -> NDArray[np.float32]:
    """1 − cosine between the first n pictures of MNIST: the matrix of the precomputed figures."""
    rows = unit_rows(mnist(n))
    costs = np.maximum(1 - rows @ rows.T, 0)
    np.fill_diagonal(costs, 0)
    return costs


def clustered(n: int, width: int, clusters: int, seed: int) -> Rows:
    """n unit vectors around `clusters` random directions, all equally likely.

    Each is its centre plus Gaussian noise of half the centre's length: the cosine between a
    vector and its centre is about 0.9, between two vectors of one cluster about 0.8.
    """
    random = np.random.default_rng(seed)
    centres = unit_rows(random.standard_normal((clusters, width), np.float32))
    rows = np.empty((n, width), np.float32)
    for start in range(0, n, 50_000):
        part = rows[start : start + 50_000]
        random.standard_normal(out=part, dtype=np.float32)
        part *= 0.5 / width**0.5
        part += centres[random.integers(clusters, size=len(part))]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return rows


def mixture(n: int, width: int, components: int, seed: int, *, decaying: bool = False) -> Rows:
    """n rows of a mixture of Gaussians with heavy tails: clusters of unequal size and shape.

    Weights are Dirichlet(1), centres 3 · N(0, I), scales log-normal with σ = 0.4, covariances A Aᵀ
    with Gaussian A; the tails are Student's t with 5 degrees of freedom. With `decaying`, column i
    of every A shrinks as i^-0.7, as the directions of real features do. The order of the draws is
    part of the definition: another one makes other rows of the same seed.
    """
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.ones(components))
    component = random.choice(components, n, p=weights)
    centres = 3 * random.normal(size=(components, width))
    scales = np.exp(0.4 * random.normal(size=components))
    shapes = random.normal(size=(components, width, width)) / np.sqrt(width)
    if decaying:
        shapes *= 1.8 * np.arange(1, width + 1) ** -0.7
    noise = random.standard_normal((n, width))
    noise *= np.sqrt(5 / random.chisquare(5, size=(n, 1)))
    rows = np.empty((n, width), np.float32)
    for number in range(components):
        members = component == number
        rows[members] = centres[number] + scales[number] * noise[members] @ shapes[number].T
    return rows


# --- measuring ----------------------------------------------------------------------------------


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Seconds on the clock, and the result."""
    begin = time.perf_counter()
    result = work(*arguments)
    return time.perf_counter() - begin, result


def median(values: list[float]) -> float:
    return statistics.median(values)


def peak_bytes() -> int:
    """The most memory this process has held so far.

    On Linux, a child's ru_maxrss includes its parent's memory; VmHWM is reset by exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def in_fresh_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a module's function, called in a new Python of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(work, *arguments).result()


class UnfinishedError(Exception):
    """The work did not end: it took too long, or its process died."""


class FailedError(Exception):
    """The work ended with an exception of its own."""


def in_limited_process(limit: float, work: Callable[..., Any], *arguments: Any) -> Any:
    """As `in_fresh_process`, with a limit on CPU seconds, which includes Python's start.

    Processor seconds, because on a busy machine others are slow, too. The process may take nine
    tenths of the memory that is free now, and no more.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sender, limit, work, arguments))
    process.start()
    sender.close()  # so that the death of the process ends the pipe
    try:
        if not receiver.poll(_PATIENCE * limit):
            raise UnfinishedError(f"did not finish within {_PATIENCE * limit:g} s on the clock")
        succeeded, result = receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            raise UnfinishedError(f"did not finish within {limit:g} processor seconds") from None
        raise UnfinishedError(f"its process died with exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if not succeeded:
        raise FailedError(result)
    return result


def _send_result(
    sender: Connection, limit: float, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), resource.RLIM_INFINITY))
    _limit_memory()
    try:
        message = (True, work(*arguments))
    except Exception as error:  # whatever another library throws is its line in the table
        message = (False, f"{type(error).__name__}: {error}")
    sender.send(message)


def _limit_memory() -> None:
    """Let an allocation that is too large fail, before the system ends other processes."""
    file = Path("/proc/meminfo")
    if not file.exists():
        return
    free = next(line for line in file.read_text().splitlines() if line.startswith("MemAvailable:"))
    limit = int(free.split()[1]) * 1024 * 9 // 10
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


@dataclass(frozen=True)
class Spent:
    """What some work took."""

    wall_seconds: float
    processor_seconds: float  # of all threads
    peak_gb: float  # memory beyond what was held before the work


def measured(work: Callable[..., Any], *arguments: Any) -> tuple[Spent, Any]:
    """What the work took, and its result."""
    before = _held_bytes()
    processor = time.process_time()
    wall, result = timed(work, *arguments)
    processor = time.process_time() - processor
    return Spent(wall, processor, max(0, peak_bytes() - before) / 1e9), result


def _held_bytes() -> int:
    """The memory held now; on Linux the peak is set back to it."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")
    return peak_bytes()


def exact_cost(costs: NDArray[np.float32], rows: NDArray[np.intp]) -> float:
    """Optimal-transport cost of these rows, all counting equally, by POT over the whole matrix.

    In whole masses, so that no rounding makes the two sides disagree.
    """
    from uniproto.transport.exact import import_ot

    k, n = len(rows), costs.shape[1]
    supply, demand = np.full(k, float(n)), np.full(n, float(k))
    matrix = costs[rows].astype(np.float64)
    plan, log = import_ot().emd(supply, demand, matrix, numItermax=100_000_000, log=True)
    if log["warning"] or not np.array_equal(plan.sum(axis=0), demand):
        raise RuntimeError(f"POT returned no optimal plan: {log['warning']}")
    return float((plan * matrix).sum() / (k * n))


# --- where and with what ------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Hardware, versions and load, to judge the numbers by."""
    import uniproto

    versions = {"python": platform.python_version(), "uniproto": uniproto.__version__}
    for library in _LIBRARIES:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            versions[library] = "not installed"
    return {
        "cpu": _cpu_model(),
        "cores": _cores(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),  # well above 0: others were running too
        "versions": versions,
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "uncommitted_changes": sorted(_git("status", "--porcelain", "--", "src").splitlines()),
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_model() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _git(*arguments: str) -> str:
    try:
        asked = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    except OSError:
        return ""
    return asked.stdout.rstrip() if asked.returncode == 0 else ""


# --- reporting ----------------------------------------------------------------------------------


class Report:
    """The lines and figures of one benchmark; its file is written again after every line."""

    def __init__(self, name: str, title: str, folder: Path, quick: bool) -> None:
        self.quick = quick
        self.file = folder / f"{name}{'-quick' if quick else ''}.json"
        self.content: dict[str, Any] = {
            "benchmark": name,
            "title": title,
            "quick": quick,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": " ".join(["python", "-m", "benchmarks", *sys.argv[1:]]),
            "machine": machine(),
            "rows": [],
            "figures": [],
            "finished": False,
        }
        self._save()

    def note(self, **facts: Any) -> None:
        """Facts about the machine known only to this benchmark, such as its GPU."""
        self.content["machine"].update(facts)
        self._save()

    def row(self, what: str, **values: Any) -> None:
        """One line of the table."""
        self.content["rows"].append({"what": what, **values})
        self._save()
        shown = ", ".join(f"{name} {_shown(value)}" for name, value in values.items())
        print(f"  {what}: {shown}", flush=True)

    def figure(self, what: str, reached: float, reach: str | None, met: bool | None) -> None:
        """A number with a goal. A quick run measures smaller work and is not judged."""
        judged = None if self.quick or reach is None else met
        self.content["figures"].append(
            {"what": what, "reached": reached, "reach": reach, "met": judged}
        )
        self._save()

    def finish(self) -> None:
        self.content["finished"] = True
        self._save()

    def _save(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.content, indent=1, ensure_ascii=False) + "\n")
        part.replace(self.file)


def rows_table(content: dict[str, Any]) -> str:
    """The lines of a report as a Markdown table; lists (all repetitions) stay in the file."""
    rows = content["rows"]
    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [
        name for name in names if not any(isinstance(row.get(name), list | dict) for row in rows)
    ]
    return _table(names, [[row.get(name) for name in names] for row in rows])


def figures_table(contents: list[dict[str, Any]]) -> str:
    """The figures of several reports as one Markdown table."""
    lines = []
    for content in contents:
        name = content["benchmark"]
        for figure in content["figures"]:
            met = {True: "yes", False: "no", None: "not judged"}[figure["met"]]
            lines.append([name, figure["what"], figure["reach"], figure["reached"], met])
        for row in content["rows"]:  # what could not run is part of the answer
            if "unavailable" in row:
                lines.append(
                    [name, f"{row['what']}: {row['unavailable']}", None, None, "not measured"]
                )
        if not content["finished"]:
            lines.append([name, "did not finish", None, None, "no"])
    return _table(["benchmark", "figure", "reach", "reached", "met"], lines)


def _table(names: list[str], lines: list[list[Any]]) -> str:
    cells = [names] + [[_shown(value) for value in line] for line in lines]
    widths = [max(3, *(len(line[column]) for line in cells)) for column in range(len(names))]
    padded = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return str(value)

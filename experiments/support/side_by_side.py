"""Run the parts of an experiment side by side on one GPU, each in a process of its own.

A small model leaves most of a GPU idle: its steps wait for Python. Several runs at once fill it.
Every process gets its share of the cores, takes the next part when it is done with one, and keeps
what it has loaded. A part that fails does not stop the others: its process ends with it, and
another one goes on with the next part. One that found the card full comes again after the others.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from support.runs import Setup
from uniproto.cli.experiment import load_script
from uniproto.errors import UniprotoError

_SECONDS_TO_STOP = 5.0
_FULL, _TRIES = "OutOfMemoryError", 3  # of a part that needs more memory than the others leave


@dataclass
class Outcome:
    """What became of the parts: done, failed with an error, or left for the next command."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def run_side_by_side(
    run: Callable[[Setup], None],
    setup: Setup,
    names: Sequence[str],
    count: int,
    seconds: float | None,
) -> None:
    """Run the parts `count` at a time, then join those that are done.

    All are stopped after `seconds`; the same command continues. Raises where parts have failed,
    once the others are done and joined.
    """
    script = Path(run.__globals__["__file__"])
    outcome = run_parts(script, setup, names, count, seconds)
    for name, why in outcome.failed.items():
        print(f"{name} failed:\n{why}", file=sys.stderr)
    print(
        f"{len(outcome.done)} parts done, {len(outcome.failed)} failed, {len(outcome.left)} left."
        + (" The same command goes on from here." if outcome.left else ""),
        flush=True,
    )
    if outcome.failed or outcome.left or setup.part is not None:
        setup = replace(setup, part=None, finished_only=True)
    run(setup)
    if outcome.failed:
        raise UniprotoError(
            f"{len(outcome.failed)} of {len(names)} parts failed ({', '.join(outcome.failed)}); "
            "their errors are above. Fix the cause and run the same command again: it runs the "
            "missing parts."
        )


def run_parts(
    script: Path, setup: Setup, names: Sequence[str], count: int, seconds: float | None = None
) -> Outcome:
    """Run each named part, `count` of them at a time, with a time limit in seconds."""
    outcome, waiting, turned_away = Outcome(), deque(names), Counter[str]()
    until = None if seconds is None else time.monotonic() + seconds
    places: deque[int] = deque(range(min(count, len(waiting))))
    workers: dict[Connection, _Worker] = {}
    try:
        while waiting or workers:
            if until is not None and time.monotonic() >= until:
                break
            while waiting and places:
                worker = _Worker.start(script, setup, places.popleft(), count)
                workers[worker.connection] = worker
                worker.give(waiting.popleft())
            left = None if until is None else max(0.0, until - time.monotonic())
            for ready in wait(list(workers), timeout=left):
                assert isinstance(ready, Connection)
                worker = workers[ready]
                error = worker.answer()
                if error is None:
                    outcome.done.append(worker.part)
                    print(f"{len(outcome.done)}: {worker.part}", flush=True)
                    if waiting:
                        worker.give(waiting.popleft())
                        continue
                elif _FULL in error and turned_away[worker.part] < _TRIES - 1:
                    turned_away[worker.part] += 1
                    waiting.append(worker.part)
                else:
                    outcome.failed[worker.part] = error
                worker.stop()
                places.append(worker.place)
                del workers[ready]
        outcome.left = [*(worker.part for worker in workers.values()), *waiting]
    finally:
        for worker in workers.values():
            worker.process.terminate()
        for worker in workers.values():
            worker.stop()
    return outcome


@dataclass
class _Worker:
    """A process that runs one part after the other."""

    process: Any
    connection: Connection
    place: int
    part: str = ""

    @classmethod
    def start(cls, script: Path, setup: Setup, place: int, count: int) -> _Worker:
        context = multiprocessing.get_context("spawn")  # a forked process cannot use the GPU
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(script, setup, theirs), daemon=True)
        with _cores(place, count):
            process.start()
        theirs.close()
        return cls(process, ours, place)

    def give(self, part: str) -> None:
        self.part = part
        with suppress(BrokenPipeError):  # then the answer says that the process is gone
            self.connection.send(part)

    def answer(self) -> str | None:
        """What went wrong with the part, or None."""
        try:
            answer: str | None = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(_SECONDS_TO_STOP)
            answer = f"its process ended with exit code {self.process.exitcode}"
        return answer

    def stop(self) -> None:
        self.connection.close()  # which a process that waits for a part takes as the end
        self.process.join(_SECONDS_TO_STOP)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _work(script: Path, setup: Setup, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that hands out the parts
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    module = load_script(script)
    while True:
        try:
            part = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            module.run(replace(setup, part=part, progress=False))
        except Exception:  # whatever it was, a new process goes on: this one's GPU may be lost
            connection.send(traceback.format_exc())
            return
        connection.send(None)


@contextmanager
def _cores(place: int, count: int) -> Iterator[None]:
    """Processes that start here get their share of the cores, where the system has such shares.

    Each would otherwise start a thread for every core, and they would wait for one another.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, share_of(cores, place, count))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def share_of(cores: Sequence[int], place: int, count: int) -> list[int]:
    """The cores of one of `count` processes; where there are fewer, several share one.

    >>> share_of([0, 1, 2, 3], 1, 2), share_of([0, 1, 2], 1, 2), share_of([0, 1], 2, 3)
    ([2, 3], [1, 2], [1])
    """
    first = place * len(cores) // count
    last = -(-(place + 1) * len(cores) // count)
    return list(cores[first:last])

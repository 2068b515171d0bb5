"""A precomputed matrix: `uniproto.select` and three libraries that choose rows from one.

All get the same matrix, in the form and precision each works in, made before the clock starts.
The clock runs over the whole call of each, checks and copies included: what its user waits for.
apricot compiles its loops again in every call; that part is measured, and a second figure leaves it
out.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report, cosine_costs, exact_cost, median, timed

TITLE = "precomputed cosine costs of MNIST, 5000 × 5000, k = 500"
REACH = 10.0


@dataclass(frozen=True)
class Answer:
    rows: Any
    compile: float = 0.0  # seconds of the call spent compiling
    set_up: float = 0.0  # seconds of the call before the search begins


@dataclass(frozen=True)
class Contender:
    name: str
    library: str
    prepare: Callable[[NDArray[np.float32]], NDArray[Any]]  # costs → what the library works on
    choose: Callable[[NDArray[Any], int, int], Answer]  # (matrix, k, seed)


def uniproto_greedy(costs: NDArray[Any], k: int, seed: int) -> Answer:
    return _ours(costs, k, "greedy")


def uniproto_default(costs: NDArray[Any], k: int, seed: int) -> Answer:
    return _ours(costs, k, "uniproto")


def _ours(costs: NDArray[Any], k: int, method: str) -> Answer:
    import uniproto

    compute = uniproto.Compute(device="cpu")
    sel = uniproto.select(
        costs, k, metric="precomputed", method=method, compute=compute, progress=False
    )
    return Answer(sel.indices, set_up=sel.details.timings["prepare"])


def fasterpam(costs: NDArray[Any], k: int, seed: int) -> Answer:
    import kmedoids

    return Answer(kmedoids.fasterpam(costs, k, random_state=seed).medoids)


def apricot_lazy(similarities: NDArray[Any], k: int, seed: int) -> Answer:
    from apricot import FacilityLocationSelection

    class Timed(FacilityLocationSelection):
        def _initialize(self, pairwise: Any) -> None:  # where it compiles, and little else
            self.compile_seconds, _ = timed(super()._initialize, pairwise)

    selector = Timed(k, metric="precomputed", optimizer="lazy")
    selector.fit(similarities)
    return Answer(selector.ranking, compile=selector.compile_seconds)


def submodlib_lazy(similarities: NDArray[Any], k: int, seed: int) -> Answer:
    from submodlib import FacilityLocationFunction

    begin = time.perf_counter()
    function = FacilityLocationFunction(
        n=len(similarities), mode="dense", sijs=similarities, separate_rep=False
    )
    set_up = time.perf_counter() - begin
    chosen = function.maximize(budget=k, optimizer="LazyGreedy", show_progress=False)
    return Answer([row for row, _ in chosen], set_up=set_up)


CONTENDERS = (
    Contender("uniproto, greedy", "uniproto", lambda costs: costs, uniproto_greedy),
    Contender("uniproto", "uniproto", lambda costs: costs, uniproto_default),
    Contender("kmedoids.fasterpam", "kmedoids", lambda costs: costs, fasterpam),
    Contender(
        "apricot lazy facility location",
        "apricot-select",
        lambda costs: 1 - costs.astype(np.float64),
        apricot_lazy,
    ),
    Contender(
        "submodlib lazy facility location", "submodlib-py", lambda costs: 1 - costs, submodlib_lazy
    ),
)


def run(report: Report, quick: bool) -> None:
    n, k, repetitions = (1000, 100, 2) if quick else (5000, 500, 5)
    costs = cosine_costs(n)
    matrices, missing = {}, {}
    for contender in CONTENDERS:
        try:  # warm-up, and the proof that it runs here
            contender.choose(contender.prepare(np.ascontiguousarray(costs[:400, :400])), 40, 0)
            matrices[contender] = contender.prepare(costs)
        except Exception as error:
            missing[contender] = f"{type(error).__name__}: {error}"
    seconds: dict[Contender, list[float]] = {contender: [] for contender in matrices}
    answers: dict[Contender, list[Answer]] = {contender: [] for contender in matrices}
    for repetition in range(repetitions):  # in turn, so that a busy minute meets all of them
        for contender, matrix in matrices.items():
            taken, answer = timed(contender.choose, matrix, k, repetition)
            seconds[contender].append(taken)
            answers[contender].append(answer)
    whole, compiled, lowest = {}, {}, {}
    for contender in CONTENDERS:
        if contender in missing:
            report.row(contender.name, unavailable=missing[contender])
            continue
        own = answers[contender]
        # A seed may be lucky: a method that draws random numbers is judged by its best.
        distinct = {tuple(sorted(map(int, answer.rows))) for answer in own}
        if any(len(set(rows)) != k for rows in distinct):
            report.row(contender.name, unavailable=f"did not return {k} different rows")
            continue
        whole[contender] = median(seconds[contender])
        compiling = median([answer.compile for answer in own])
        compiled[contender] = whole[contender] - compiling
        lowest[contender] = min(exact_cost(costs, np.array(rows)) for rows in distinct)
        report.row(
            contender.name,
            version=_version(contender.library),
            seconds=whole[contender],
            of_which_set_up=median([answer.set_up for answer in own]),
            of_which_compiling=compiling,
            ot_cost=lowest[contender],
            k=k,
            repetitions=repetitions,
            all_seconds=seconds[contender],
        )
    ours, default, *peers = CONTENDERS
    present = [peer for peer in peers if peer in whole]
    if ours not in whole or not present:
        return
    complete = len(present) == len(peers)  # a missing peer might have been the fastest
    speedup = min(whole[peer] for peer in present) / whole[ours]
    report.figure(
        "times as fast as the fastest peer", speedup, f"≥ {REACH:g}", complete and speedup >= REACH
    )
    report.figure(
        "the same, without what a peer compiles in every call",
        min(compiled[peer] for peer in present) / compiled[ours],
        None,
        None,
    )
    ratio = lowest[ours] / min(lowest[peer] for peer in present)
    report.figure("OT cost relative to the best peer's", ratio, "< 1", complete and ratio < 1)
    if default in whole:
        speedup = min(whole[peer] for peer in present) / whole[default]
        report.figure("the default: times as fast as the fastest peer", speedup, None, None)
        ratio = lowest[default] / min(lowest[peer] for peer in present)
        report.figure("the default: OT cost relative to the best peer's", ratio, None, None)


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "source tree"

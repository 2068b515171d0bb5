"""The word rules of `curate` on a million rows: processor seconds, and memory beyond the rows.

Rows of 22 sources of mathematics, again and again with other numbers, so that few are copies; every
tenth stands under one template. The target and the benchmark are 300 such rows each.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

import pyarrow as pa

from benchmarks.common import Report, in_fresh_process, measured
from benchmarks.leaks import lines_of

TITLE = "word rules: a pool against a target, a benchmark and itself"
_SIZES, _QUICK_SIZES = (100_000, 1_000_000), (5_000,)
_TARGETS, _AT_ONCE = 300, 10_000
_TEMPLATE = (
    "Below is an instruction that describes a task. Write a response that completes the request "
    "and show every step of your work before you give the answer.\n\n"
)

Example = tuple[str, str]


def run(report: Report, quick: bool) -> None:
    for size in _QUICK_SIZES if quick else _SIZES:
        report.row(f"m = {size:,}", **in_fresh_process(word_rules, size))


def word_rules(size: int) -> dict[str, Any]:
    """What the word rules take, and how many rows they drop."""
    from uniproto.lm.curation.repeats import repeats

    examples = _examples()
    references = [list(islice(examples, _TARGETS)) for _ in range(2)]
    spent, found = measured(_found, repeats, _Rows(islice(examples, size)), references)
    return {**asdict(spent), "dropped": found}


def _found(repeats: Any, pool: _Rows, references: list[list[Example]]) -> int:
    return len({one.row for those in repeats(pool, references, itself=True) for one in those})


def _examples() -> Iterator[Example]:
    draw = random.Random(0)
    rows = [json.loads(line) for line in lines_of("math/math_train.jsonl.zst")]
    draw.shuffle(rows)
    first = True
    while True:
        for place, row in enumerate(rows):
            prompt, answer = row["instruction"], row["output"]
            if not first:
                prompt, answer = (
                    re.sub(r"\d+", lambda found: str(draw.randrange(10 ** len(found[0]))), text)
                    for text in (prompt, answer)
                )
            yield (_TEMPLATE + prompt if place % 10 == 0 else prompt), answer
        first = False


class _Rows:
    """Examples in Arrow's columns, which are gone through several times as `curate` does."""

    def __init__(self, examples: Iterator[Example]) -> None:
        parts = []
        while some := list(islice(examples, _AT_ONCE)):
            prompts, answers = zip(*some, strict=True)
            parts.append(pa.table({"prompt": prompts, "answer": answers}))
        self._table = pa.concat_tables(parts)

    def __iter__(self) -> Iterator[Example]:
        for batch in self._table.to_batches(max_chunksize=1024):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

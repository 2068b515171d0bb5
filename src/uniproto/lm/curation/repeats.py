"""Rows of a pool that repeat others in words: a target, benchmarks, or earlier rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from uniproto.lm.curation.copies import Copies
from uniproto.lm.curation.overlap import Reference, Repeat
from uniproto.lm.curation.words import WordHashes


def repeats(
    pool: Iterable[Any], references: Sequence[Iterable[Any]] = (), *, itself: bool = False
) -> list[list[Repeat]]:
    """The rows that repeat each reference and, last, those that repeat an earlier one (`itself`).

    `pool` is iterated three times.

    >>> pool = [("please solve: what is 3 + 4", "7"), ("What is 3 + 5?", "8"), ("what is 3+5", "8")]
    >>> repeats(pool, [[("What is 3 + 4?", "7")]], itself=True)
    [[Repeat(row=0, of=0, rule='same question', words='what is 3 4')], \
[Repeat(row=2, of=1, rule='same question and answer', words='what is 3 5 8')]]
    """
    hashes = WordHashes()
    found = [Reference(examples, hashes) for examples in references]
    copies = [Copies(hashes)] if itself else []
    every: list[Reference | Copies] = [*found, *copies]
    for batch in hashes.batches(pool):
        for each in every:
            each.count(batch)
    for batch in hashes.batches(pool):
        for each in every:
            each.look(batch)
    repeated: list[list[Repeat]] = [[] for _ in found]
    wanted = {row for each in every for row in each.rows}
    for row, example in enumerate(pool if wanted else ()):
        if row not in wanted:
            continue
        for reference, those in zip(found, repeated, strict=True):
            if (one := reference.judge(row, example)) is not None:
                those.append(one)
        for own in copies:
            if row in own.rows:
                own.keep(row, example)
    return [*repeated, *(each.found() for each in copies)]

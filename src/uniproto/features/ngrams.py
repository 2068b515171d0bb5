"""Texts as counts of hashed n-grams, which DSIR weighs them by."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from uniproto.errors import invalid, require_int

_WORDS = re.compile(r"\w+|[^\w\s]+")


def hashed_ngrams(texts: Iterable[Any], *, n: int = 2, buckets: int = 10_000) -> sp.csr_matrix:
    """Count the words of each text, and the runs of up to n words, in so many buckets.

    >>> counts = hashed_ngrams(["one two two", "two"], buckets=100)
    >>> counts.shape, counts.sum(axis=1).ravel().tolist()
    ((2, 100), [[5.0, 1.0]])
    """
    require_int("n", n)
    require_int("buckets", buckets)
    if isinstance(texts, str | bytes):
        raise invalid("texts", "must be several texts", "one text", "Put it into a list.")
    ends: list[int] = [0]
    columns: list[int] = []
    counts: list[int] = []
    for text in texts:
        words = _WORDS.findall(str(text).lower())
        grams = (
            " ".join(words[first : first + size])
            for size in range(1, n + 1)
            for first in range(len(words) - size + 1)
        )
        found = Counter(
            zlib.crc32(gram.encode("utf-8", "surrogatepass")) % buckets for gram in grams
        )
        columns.extend(found)
        counts.extend(found.values())
        ends.append(len(columns))
    arrays = (np.array(counts, np.float64), np.array(columns, np.int64), np.array(ends))
    return sp.csr_matrix(arrays, shape=(len(ends) - 1, buckets))

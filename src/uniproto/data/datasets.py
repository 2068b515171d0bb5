"""Published data sets by name, from files a person has fetched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from uniproto.data import pictures, tabular
from uniproto.data.published import VARIABLE, Dataset
from uniproto.errors import require_name

__all__ = ["DATASETS", "Dataset", "load_dataset"]

DATASETS: dict[str, Callable[[Path | None], Dataset]] = {
    "adult": tabular.adult,
    "cifar10": pictures.cifar10,
    "cifar10-features": pictures.cifar10_features,
    "cifar100": pictures.cifar100,
    "credit": tabular.credit,
    "digits": pictures.digits,
    "fashion-mnist": pictures.fashion_mnist,
    "letter": tabular.letter,
    "mnist": pictures.mnist,
    "usps": pictures.usps,
}


def load_dataset(name: str, path: str | os.PathLike[str] | None = None) -> Dataset:
    """A published data set, split into training and test rows.

    Nothing is downloaded. `path` is the folder to look in, or the data set's own file; without
    it the environment variable UNIPROTO_DATA names the folder, such as
    UNIPROTO_DATA=/path/to/data. Sub-folders `images`, `tabular` and the customary ones of each
    data set are searched as well.

    | name | rows | features, as they are returned |
    |---|---|---|
    | `digits` | 1,297 + 500 | 64 grey values 0…16, uint8; comes with scikit-learn, needs no path |
    | `mnist`, `fashion-mnist` | 60,000 + 10,000 | 784 grey values 0…255, uint8 |
    | `cifar10`, `cifar100` | 50,000 + 10,000 | 3,072 colour values 0…255, uint8, pixel by pixel |
    | `cifar10-features` | 50,000 + 10,000 | 128 principal components of network features, float32 |
    | `usps` | 7,291 + 2,007 | 256 values from 0 (paper) to 1 (ink), float32 |
    | `letter` | 16,000 + 4,000 | 16 whole numbers 0…15, uint8 |
    | `adult` | 32,561 + 16,281 | 6 standardised numbers, 8 categories one-hot, float32 |
    | `credit` | 24,000 + 6,000 | 20 standardised numbers, 3 categories one-hot, float32 |

    The split is the published one. `letter` is split as is usual, `digits` (in order) and `credit`
    (drawn with a fixed seed) by us; `Dataset.note` says so, and where rows are missing.

    Raises:
        InputFileError: the files are not there (with their home page), or are damaged.

    >>> from uniproto.data import load_dataset
    >>> load_dataset("digits")
    Dataset('digits', 1,297 + 500 rows of 64 features, our split: the first 1,297 rows for training,
    the last 500 for testing)
    """
    require_name("name", name, DATASETS)
    where = path if path is not None else os.environ.get(VARIABLE) or None
    return DATASETS[name](None if where is None else Path(where))

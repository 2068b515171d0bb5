"""Data sets of tables: Letter, Adult, Credit default.

Mixed columns become features in one way: a numeric column is moved and scaled to mean 0 and
variance 1 over the training rows; a categorical one becomes one 0-or-1 feature per value that the
training rows have (a test row with another value has 0 in all of them). A missing value is a value
of its own. The label is never among the features.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.formats import read_arrays, read_lines, reading
from uniproto.data.published import Dataset, Places, checked_labels, checked_rows, count_note

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
        raise places.missing("adult.data with adult.test beside it", "adult.csv.gz")
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


def encoded(
    train: dict[str, NDArray[Any]],
    test: dict[str, NDArray[Any]],
    *,
    is_number: Callable[[str], bool],
) -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[str, ...]]:
    """Columns of text as features, by the training rows alone; and the features' names.

    >>> train = {"age": np.array(["20", "40"]), "work": np.array(["farm", "?"])}
    >>> test = {"age": np.array(["30"]), "work": np.array(["navy"])}
    >>> encoded(train, test, is_number=lambda name: name == "age")
    (array([[-1., 0., 1.], [ 1., 1., 0.]], dtype=float32), array([[0., 0., 0.]], dtype=float32),
     ('age', 'work=?', 'work=farm'))
    """
    sides: tuple[list[NDArray[Any]], list[NDArray[Any]]] = ([], [])
    names: list[str] = []
    for name, known in train.items():
        if is_number(name):
            numbers = known.astype(np.float64)
            centre, spread = numbers.mean(), numbers.std()
            for side, values in zip(sides, (known, test[name]), strict=True):
                side.append((values.astype(np.float64) - centre) / (spread if spread > 0 else 1.0))
            names.append(name)
            continue
        for value in np.unique(known):
            for side, values in zip(sides, (known, test[name]), strict=True):
                side.append(values == value)
            names.append(f"{name}={value}")
    first, second = (np.column_stack(side).astype(np.float32) for side in sides)
    return first, second, tuple(names)

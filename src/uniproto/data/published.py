"""A published data set, and the places where its files may lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InputFileError

VARIABLE = "UNIPROTO_DATA"
_SUB_FOLDERS = ("", "images", "tabular")


@dataclass(frozen=True)
class Dataset:
    """A data set split into training and test rows.

    `train` and `test` are (rows, features), uint8 where the published values are whole numbers up
    to 255 and float32 otherwise; `load_dataset` says which scale each has. Labels are int64 from
    0, and `class_names[label]` is what a label means. A row of a picture has `picture_shape`.
    `note` says what a reader of results must know: a subset, a split of our own, a stand-in.

    >>> from uniproto.data import load_dataset
    >>> digits = load_dataset("digits")
    >>> digits.test[0].reshape(digits.picture_shape).shape, digits.class_names[3]
    ((8, 8), '3')
    """

    name: str
    train: NDArray[Any]
    train_labels: NDArray[np.int64]
    test: NDArray[Any]
    test_labels: NDArray[np.int64]
    class_names: tuple[str, ...] | None = None
    picture_shape: tuple[int, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    note: str = ""

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, {len(self.train):,} + {len(self.test):,} rows of "
            f"{self.train.shape[1]} features{f', {self.note}' if self.note else ''})"
        )


@dataclass(frozen=True)
class Places:
    """Where the files of one data set are looked for: a folder and what is in it, or one file."""

    name: str
    home: str  # the page it is published on
    path: Path | None
    folders: tuple[str, ...] = ()  # customary names of its own folder

    def file(self, *names: str) -> Path | None:
        """The first of these files there is; a path that is a file must only end like one."""
        if self.path is not None and self.path.is_file():
            endings = {_ending(name) for name in names}
            return self.path if _ending(self.path.name) in endings else None
        for folder in self._searched():
            for name in names:
                if (folder / name).is_file():
                    return folder / name
        return None

    def together(self, files: Sequence[Sequence[str]]) -> list[Path] | None:
        """One path for each of several files of one folder, each under one of its names."""
        known = {name for names in files for name in names}
        if self.path is not None and self.path.is_file() and self.path.name not in known:
            return None
        for folder in self._searched():
            found = [
                next((folder / name for name in names if (folder / name).is_file()), None)
                for names in files
            ]
            if all(found):
                return [file for file in found if file is not None]
        return None

    def folder(self, name: str) -> Path | None:
        """A sub-folder of this name, or the path itself if it is called so."""
        if self.path is not None and self.path.is_dir() and self.path.name == name:
            return self.path
        return next((place / name for place in self._searched() if (place / name).is_dir()), None)

    def missing(self, *wanted: str) -> InputFileError:
        """What to say where nothing was found: what was looked for, its home, what to do."""
        if self.path is None:
            looked = "no folder was named to look in"
        elif self.path.is_file():
            looked = f"it is not in {self.path}"
        elif self.path.is_dir():
            inner = [name for name in (*_SUB_FOLDERS[1:], *self.folders) if name]
            looked = f"it is not in {self.path}, nor in its sub-folders {', '.join(inner)}"
        else:
            looked = f"there is no {self.path}"
        return InputFileError(
            f"The data set {self.name!r} must be on this machine, as {', or '.join(wanted)}: "
            f"{looked}. Get it from {self.home} and pass its folder or file as 'path', or set the "
            f"environment variable {VARIABLE} to the folder."
        )

    def _searched(self) -> list[Path]:
        if self.path is None:
            return []
        root = self.path.parent if self.path.is_file() else self.path
        return [root / folder for folder in (*_SUB_FOLDERS, *self.folders)]


def checked_labels(values: Any, classes: int, path: Path) -> NDArray[np.int64]:
    """Labels from 0 to classes − 1."""
    found = np.asarray(values).ravel()
    if found.dtype.kind not in "iufb" or not (np.isfinite(found) & (abs(found) < 2**63)).all():
        raise InputFileError(
            f"{path}: the labels must be whole numbers. Got values of type {found.dtype} that are "
            "none instead. Check that it is the file of this data set."
        )
    labels = found.astype(np.int64)
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        raise InputFileError(
            f"{path}: the labels must be from 0 to {classes - 1}. Got labels from {labels.min()} "
            f"to {labels.max()} instead. Check that it is the file of this data set."
        )
    return labels


def checked_rows(
    values: NDArray[Any], labels: NDArray[np.int64], width: int, path: Path
) -> NDArray[Any]:
    """One row of `width` features for every label."""
    fits = values.ndim > 0 and len(values) == len(labels) > 0 and values[0].size == width
    if not fits or values.dtype.kind not in "iufb":
        raise InputFileError(
            f"{path}: the file must hold {width} features for each of its labels. Got "
            f"{values.dtype} features of shape {values.shape} and {len(labels)} labels instead. "
            "Check that it is the file of this data set, and download it again."
        )
    return np.ascontiguousarray(values.reshape(len(values), width))


def count_note(train: int, test: int, published: tuple[int, int]) -> str:
    """Says so where a data set is not all there."""
    if (train, test) == published:
        return ""
    return (
        f"not the whole data set: {train:,} + {test:,} rows of the published "
        f"{published[0]:,} + {published[1]:,}"
    )


def _ending(name: str) -> str:
    """`.tar.gz` of `a-b.tar.gz`: all suffixes that are not part of a number."""
    suffixes = Path(name).suffixes
    if suffixes[-1:] in ([".gz"], [".bz2"]) and len(suffixes) > 1 and suffixes[-2] in _INNER:
        return "".join(suffixes[-2:])
    return suffixes[-1] if suffixes else ""


_INNER = (".tar", ".csv")

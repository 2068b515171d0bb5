"""Published data sets: where their files may lie, the formats they have, and what must hold."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import pickle
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.files import reading
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

    >>> from support.datasets import load_dataset
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


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Named arrays of an .npz archive; pickled objects are never loaded."""
    with reading(path, f"the arrays {', '.join(names)}"), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        return [archive[name] for name in names]


def read_idx(path: Path) -> NDArray[np.uint8]:
    """MNIST's own format: the sizes of an array, then its bytes; gzipped or not."""
    with reading(path, "an array of bytes in IDX format"):
        content = _content(path)
        if content[:3] != b"\x00\x00\x08" or content[3:4] not in (b"\x01", b"\x03"):
            raise ValueError("it does not begin like an IDX file of bytes")
        dimensions = content[3]
        start = 4 + 4 * dimensions
        shape = tuple(np.frombuffer(content[4:start], ">u4").tolist())
        if len(content) - start != math.prod(shape):
            raise ValueError(f"{len(content) - start} bytes where {math.prod(shape)} are announced")
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_libsvm(path: Path, width: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Lines of `label index:value …`, as .bz2, .gz or plain text: features and labels."""
    from sklearn.datasets import load_svmlight_file

    with reading(path, f"lines of LIBSVM's format with {width} features"):
        rows, labels = load_svmlight_file(str(path), n_features=width, dtype=np.float32)
        return rows.toarray(), labels.astype(np.int64)


def read_lines(path: Path, columns: int) -> list[list[str]]:
    """The fields of every line of a comma-separated file, without blanks around them."""
    with reading(path, f"lines of {columns} values separated by commas"):
        text = _content(path).decode("utf-8-sig")
        lines = [
            [field.strip() for field in line]
            for line in csv.reader(text.splitlines(), skipinitialspace=True)
            if line and not line[0].startswith("|")  # adult.test begins with such a remark
        ]
        for number, line in enumerate(lines, 1):
            if len(line) != columns:
                raise ValueError(f"{len(line)} values in line {number}")
        if not lines:
            raise ValueError("it is empty")
        return lines


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a .jsonl.zst file, one per line."""
    import pyarrow as pa

    with pa.input_stream(str(path), compression="zstd") as stream:
        return [json.loads(line) for line in stream.read().decode("utf-8").split("\n") if line]


def first_of_each(rows: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The first rows of every source, in their order.

    >>> first_of_each([{"source": "a"}, {"source": "b"}, {"source": "a"}], 1)
    [{'source': 'a'}, {'source': 'b'}]
    """
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        seen[row["source"]] += 1
        if seen[row["source"]] <= most:
            found.append(row)
    return found


def read_cifar(
    archive: Path, inner: str, names: tuple[str, ...], optional: str
) -> list[dict[str, Any]]:
    """The pickled files `names` of a CIFAR archive (or of its extracted folder), and `optional`.

    They are read by an unpickler that knows arrays of bytes and plain containers and refuses
    everything else, so that a forged file runs no code.
    """
    with reading(archive, f"the CIFAR files {', '.join(names)}"):
        if archive.is_dir():
            parts = [(archive / name).read_bytes() for name in names]
            extra = archive / optional
            parts.append(extra.read_bytes() if extra.is_file() else b"")
        else:
            with tarfile.open(archive) as tar:
                members = {member.name.removeprefix("./"): member for member in tar}
                absent = [name for name in names if f"{inner}/{name}" not in members]
                if absent:
                    raise ValueError(f"no {inner}/{absent[0]}")
                parts = [
                    _member(tar, members.get(f"{inner}/{name}")) for name in (*names, optional)
                ]
        return [_plain_pickle(part) if part else {} for part in parts]


def _member(tar: tarfile.TarFile, member: tarfile.TarInfo | None) -> bytes:
    file = None if member is None else tar.extractfile(member)
    return b"" if file is None else file.read()


def _plain_pickle(content: bytes) -> dict[str, Any]:
    """A pickled dictionary whose keys Python 2 or 3 has written."""
    loaded = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(loaded, dict):
        raise ValueError("it holds no dictionary")
    return {
        key.decode() if isinstance(key, bytes) else str(key): value.array
        if isinstance(value, _Bytes)
        else value
        for key, value in loaded.items()
    }


class _PlainUnpickler(pickle.Unpickler):
    """Knows arrays of bytes and plain containers; a pickle may name nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}; only arrays of bytes and plain containers are read"
            ) from None


class _Bytes:
    """Stands in for an array of bytes while it is unpickled; `array` is the array."""

    def __init__(self, *_: Any) -> None:
        self.array = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, content = state
        if not isinstance(kind, _Kind) or kind.code not in ("u1", "|u1") or by_columns:
            raise pickle.UnpicklingError("it holds an array of something other than bytes")
        self.array = np.frombuffer(content, np.uint8).reshape(shape)


class _Kind:
    """Stands in for an array's type, of which only the code matters."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        pass


def _encoded(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into pickles that Python 2 can read."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("it holds oddly encoded bytes")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Bytes,
    ("numpy._core.multiarray", "_reconstruct"): _Bytes,
    ("numpy", "ndarray"): _Bytes,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encoded,
}


def _content(path: Path) -> bytes:
    """All of a file, unzipped where it is gzipped."""
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


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

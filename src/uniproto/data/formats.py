"""The formats data sets are published in; whatever is wrong with a file is said in one message."""

from __future__ import annotations

import csv
import gzip
import io
import math
import pickle
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InputFileError, UniprotoError


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Whatever goes wrong while reading becomes one message that names the file."""
    try:
        yield
    except (UniprotoError, MemoryError):
        raise
    except Exception as error:  # what a parser makes of a damaged file can be anything
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise InputFileError(
            f"{path}: the file must hold {what}. It could not be read ({reason}). Download it "
            "again, and check that it is complete."
        ) from error


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

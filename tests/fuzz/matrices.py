"""Sources and targets: numbers of every size, in every dress a user may bring them in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse as sp
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

from .places import new_folder

_DTYPES = [
    *("f8", "f8", "f8", "f4", "f4", "f2", ">f8", ">f4", "g"),
    *("i1", "i2", "i4", "i8", "u1", "u2", "u8", ">i4", "?"),
]


@dataclass(frozen=True)
class Given:
    """What is handed to the package, and the numbers it stands for (None: it stands for none)."""

    value: Any
    numbers: NDArray[np.float64] | None
    dress: str

    def __repr__(self) -> str:
        if self.numbers is None:
            return f"<{self.dress}>"
        kind = getattr(self.value, "dtype", type(self.value).__name__)
        return f"<{self.dress}, {kind}: {np.array2string(self.numbers, precision=17)}>"


def _lattice(random: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return random.integers(-2, 3, shape).astype(np.float64)


def _anything(random: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    signs = random.choice([-1.0, 0.0, 1.0], shape)
    with np.errstate(all="ignore"):
        return signs * 10.0 ** random.uniform(-323, 308, shape)


def _scaled(power: float) -> Callable[..., NDArray[np.float64]]:
    def numbers(random: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            return np.clip(random.normal(size=shape), -9, 9) * 10.0**power

    return numbers


_CONTENTS: dict[str, Callable[..., NDArray[np.float64]]] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "positive": lambda random, shape: random.random(shape),
    "lattice": _lattice,
    "copies": lambda random, shape: np.repeat(random.normal(size=(1, shape[1])), shape[0], axis=0),
    "constant": lambda random, shape: np.full(shape, float(random.integers(-1, 2))),
    "far off": lambda random, shape: 1e6 + random.normal(size=shape),
    "whole": lambda random, shape: random.integers(-(2**40), 2**40, shape).astype(np.float64),
    "anything": _anything,
    **{f"about 1e{power}": _scaled(power) for power in (-323, -310, -170, -40, -20, 10, 18)},
    **{f"about 1e{power}": _scaled(power) for power in (20, 38, 100, 153, 160, 300, 307)},
}
_COMMON = ("normal", "positive", "lattice", "copies", "far off")


@st.composite
def numbers(draw: st.DrawFn, shape: tuple[int, int], poisoned: bool = False) -> NDArray[Any]:
    """An array of any numeric type and content."""
    common = draw(st.booleans())
    content = draw(st.sampled_from(_COMMON if common else sorted(_CONTENTS)))
    random = np.random.default_rng(draw(st.integers(0, 2**20)))
    values = _CONTENTS[content](random, shape)
    with np.errstate(all="ignore"):
        array = values.astype(draw(st.sampled_from(_DTYPES)))
    if poisoned and array.size and array.dtype.kind == "f":
        poison = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        array[random.integers(shape[0]), random.integers(shape[1])] = poison
    return array


class _Labelled(np.ndarray):
    """A subclass of an array, as other libraries have."""


class _Duck:
    """Not an array, but turns into one."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self.values if dtype is None else self.values.astype(dtype)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array = array.copy()
    array.setflags(write=False)
    return array


def _strided(array: NDArray[Any]) -> NDArray[Any]:
    wide = np.zeros((array.shape[0] * 2, array.shape[1] * 3), array.dtype)
    wide[::2, ::3] = array
    return wide[::2, ::3]


def _unaligned(array: NDArray[Any]) -> NDArray[Any]:
    room = np.zeros(array.nbytes + 1, np.uint8)[1:]
    odd = room.view(array.dtype).reshape(array.shape)
    odd[...] = array
    return odd


def _on_disk(array: NDArray[Any]) -> NDArray[Any]:
    with tempfile.NamedTemporaryFile() as file:
        array.tofile(file.name)
        return np.memmap(file.name, array.dtype, "r", shape=array.shape)


def _sparse_with_repeats(array: NDArray[Any]) -> Any:
    """Entries in halves, unsorted, with explicit zeros: all of it legal."""
    rows, columns = (places.ravel() for places in np.indices(array.shape))
    half = array.ravel() / 2
    data = np.concatenate([half, half, np.zeros(1)])
    rows, columns = np.append(np.tile(rows[::-1], 2), 0), np.append(np.tile(columns[::-1], 2), 0)
    data[: half.size], data[half.size : -1] = half[::-1], half[::-1]
    return sp.coo_array((data, (rows, columns)), shape=array.shape)


def _columns(array: NDArray[Any]) -> dict[str, Any]:
    return {f"c{place}": column.copy() for place, column in enumerate(array.T)}


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """In the machine's byte order and at most 64 bits, which is all that tables know."""
    narrow = np.float64 if array.dtype.char == "g" else array.dtype.newbyteorder("=")
    with np.errstate(all="ignore"):
        return array.astype(narrow)


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(_native(array)))


def _as_file(ending: str) -> Callable[[NDArray[Any]], Path]:
    def write(array: NDArray[Any]) -> Path:
        path = new_folder() / f"pool{ending}"
        if ending == ".npy":
            np.save(path, array)
        elif ending == ".npz":
            np.savez(path, array)
        elif ending == ".csv":
            # As doubles: the text of a single is nearest to it, but not the same number.
            numbers = array if array.dtype.kind != "f" else array.astype(np.float64)
            pd.DataFrame(_columns(numbers)).to_csv(path, index=False)
        else:
            pd.DataFrame(_columns(_native(array))).to_parquet(path)
        return path

    return write


_DRESSES: dict[str, Callable[[NDArray[Any]], Any]] = {
    "array": lambda array: array,
    "column order": np.asfortranarray,
    "read-only": _read_only,
    "strided": _strided,
    "backwards": lambda array: array[::-1].copy()[::-1],
    "unaligned": _unaligned,
    "subclass": lambda array: array.view(_Labelled),
    "np.matrix": lambda array: array.view(np.matrix),
    "masked, nothing masked": lambda array: np.ma.array(array),
    "duck": _Duck,
    "on disk": _on_disk,
    "lists": lambda array: array.tolist(),
    "tuples of arrays": lambda array: tuple(array),
    "object array": lambda array: array.astype(object),
    "pandas": lambda array: pd.DataFrame(_columns(_native(array))),
    "pandas, odd index": lambda array: pd.DataFrame(
        _native(array), index=[7] * len(array), columns=pd.RangeIndex(array.shape[1])
    ),
    "pandas, nullable": lambda array: pd.DataFrame(_columns(_native(array))).convert_dtypes(),
    "polars": lambda array: pl.DataFrame(_columns(_native(array))),
    "arrow": lambda array: pa.table(_columns(_native(array))),
    "arrow lists": lambda array: pa.table({"vector": list(_native(array))}),
    "arrow, chunked": lambda array: pa.concat_tables(
        [pa.table(_columns(_native(array)[part])) for part in (slice(0, 1), slice(1, None))]
    ),
    "tensor": _tensor,
    "tensor with gradient": lambda array: _tensor(array).double().requires_grad_(),
    "tensor, transposed": lambda array: _tensor(array.T.copy()).T,
    "sparse rows": lambda array: sp.csr_matrix(_native(array)),
    "sparse array": lambda array: sp.csr_array(_native(array)),
    "sparse columns": lambda array: sp.csc_array(_native(array)),
    "sparse lists": lambda array: sp.lil_matrix(_native(array)),
    "sparse with repeats": lambda array: _sparse_with_repeats(_native(array).astype(np.float64)),
    ".npy file": _as_file(".npy"),
    ".npz file": _as_file(".npz"),
    ".csv file": _as_file(".csv"),
    ".parquet file": _as_file(".parquet"),
}
_UNSUITED = {  # what the other library itself does not take
    "f2": ("sparse",),
    "u8": ("tensor",),
    "u2": ("tensor",),
}


@st.composite
def matrices(draw: st.DrawFn, shape: tuple[int, int], poisoned: bool = False) -> Given:
    """A matrix of numbers in some dress; `numbers` is what it holds."""
    array = draw(numbers(shape, poisoned))
    dress = draw(st.sampled_from(sorted(_DRESSES)))
    if any(dress.startswith(word) for word in _UNSUITED.get(array.dtype.str[1:], ())):
        dress = "array"
    value = _DRESSES[dress](array)
    held = array if dress in ("array", "on disk", ".npy file", ".npz file") else _native(array)
    with np.errstate(all="ignore"):
        if dress == "sparse with repeats":
            return Given(value, np.asarray(value.toarray(), np.float64), dress)
        return Given(value, held.astype(np.float64), dress)


class _Raises:
    """Breaks when it is turned into an array."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise RuntimeError("out of order")


def _endless() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def _deep() -> list[Any]:
    nested: list[Any] = [1.0]
    for _ in range(3000):
        nested = [nested]
    return nested


# Nothing that could be selected from.
NO_MATRICES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a number": lambda: 3.5,
    "a text": lambda: "pool.npy",
    "bytes": lambda: b"\x00\x01",
    "nothing": list,
    "an empty row": lambda: [[]],
    "no rows": lambda: np.empty((0, 3)),
    "no columns": lambda: np.empty((3, 0)),
    "0 dimensions": lambda: np.array(1.0),
    "1 dimension": lambda: np.ones(4),
    "3 dimensions": lambda: np.ones((2, 2, 2)),
    "ragged": lambda: [[1.0], [1.0, 2.0]],
    "texts": lambda: np.array([["a", "b"]]),
    "numbers as text": lambda: np.array([["1", "2"]]),
    "dates": lambda: np.array([["2020-01-01"]], "M8[D]"),
    "durations": lambda: np.array([[1]], "m8[s]"),
    "records": lambda: np.zeros(3, [("x", "f8")]),
    "complex": lambda: np.ones((2, 2), complex),
    "void": lambda: np.zeros((2, 2), "V4"),
    "objects": lambda: np.array([[object(), 1]], object),
    "a set": lambda: {1.0, 2.0},
    "a mapping": lambda: {"x": [1.0]},
    "a generator": lambda: (row for row in [[1.0]]),
    "a ring": _endless,
    "too deep": _deep,
    "breaks": _Raises,
    "a class": lambda: np.ndarray,
    "a module": lambda: np,
    "masked": lambda: np.ma.array([[1.0, 2.0]], mask=[[True, False]]),
    "huge integers": lambda: [[10**400, 1]],
    "empty table": lambda: pd.DataFrame(),
    "table without columns": lambda: pd.DataFrame(index=range(3)),
    "table of one text": lambda: pd.DataFrame({"x": ["a", "a"]}),
    "empty columns": lambda: pl.DataFrame({"x": [None, None]}),
    "table of dates": lambda: pd.DataFrame({"x": pd.to_datetime(["2020-01-01"])}),
    "same name twice": lambda: pd.DataFrame([[1.0, "a"]], columns=["x", "x"]),
    "column index of tuples": lambda: pd.DataFrame(
        [["a"]], columns=pd.MultiIndex.from_tuples([(1, 2)])
    ),
    "a column": lambda: pd.Series([1.0, 2.0]),
    "a polars column": lambda: pl.Series([1.0, 2.0]),
    "a lazy table": lambda: pl.LazyFrame({"x": [1.0]}),
    "ragged lists": lambda: pa.table({"x": [[1.0], [1.0, 2.0]]}),
    "empty lists": lambda: pa.table({"x": pa.array([[], []], pa.list_(pa.float64()))}),
    "lists of lists": lambda: pa.table({"x": [[[1.0]], [[2.0]]]}),
    "lists with gaps": lambda: pa.table({"x": [[1.0, None]]}),
    "missing lists": lambda: pa.table({"x": [[1.0], None]}),
    "structs": lambda: pa.table({"x": [{"y": 1.0}]}),
    "maps": lambda: pa.table({"x": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}),
    "nulls": lambda: pa.table({"x": pa.nulls(3)}),
    "no chunks": lambda: pa.table({"x": pa.chunked_array([], pa.float64())}),
    "a record batch": lambda: pa.record_batch({"x": ["a"]}),
    "an Arrow array": lambda: pa.array([1.0, 2.0]),
    "a flat tensor": lambda: torch.ones(3),
    "a tensor of nothing": lambda: torch.empty(0, 3),
    "a complex tensor": lambda: torch.ones(2, 2, dtype=torch.complex64),
    "a tensor without data": lambda: torch.empty(2, 2, device="meta"),
    "a sparse vector": lambda: sp.coo_array(np.ones(3)),
    "an empty sparse matrix": lambda: sp.csr_matrix((0, 3)),
    "a sparse matrix of objects": lambda: sp.csr_matrix((2, 2), dtype=complex),
    "no such file": lambda: Path("no/such/pool.npy"),
    "a folder without tables": new_folder,
    "no ending": lambda: Path("/etc/hostname"),
    "a NUL in a path": lambda: Path("\x00.npy"),
    "half a character in a path": lambda: Path("\ud800.npy"),
    "too long a path": lambda: Path("a" * 5000 + ".npy"),
}


def no_matrices() -> st.SearchStrategy[Given]:
    """Things that are no matrix of numbers."""
    return st.sampled_from(sorted(NO_MATRICES)).map(
        lambda name: Given(NO_MATRICES[name](), None, name)
    )

"""Input files: whole ones, forged ones, and ones that something has happened to."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

ENDINGS = (".npy", ".npz", ".parquet", ".csv", ".jsonl", ".txt", "", ".NPY", ".pkl", ".npy.gz")
MARKER = Path("fuzz-marker-of-executed-pickle")  # what a forged pickle would leave behind


@dataclass(frozen=True)
class Damaged:
    """The content of a file, and what was done to it."""

    name: str
    ending: str
    content: bytes

    def __repr__(self) -> str:
        shown = repr(self.content[:300]) + (" …" if len(self.content) > 300 else "")
        return f"Damaged({self.name!r}, {self.ending!r}, {len(self.content)} bytes: {shown})"


_ROWS = np.random.default_rng(0).normal(size=(12, 3)).round(3)


def _npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _parquet(columns: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def _columns() -> dict[str, Any]:
    return {"x": _ROWS[:, 0], "y": _ROWS[:, 1], "z": _ROWS[:, 2]}


def _whole() -> dict[str, tuple[str, bytes]]:
    lines = [json.dumps(dict(zip("xyz", row, strict=True))) for row in _ROWS.tolist()]
    lists = [json.dumps({"vector": row}) for row in _ROWS.tolist()]
    return {
        "npy": (".npy", _npy(_ROWS)),
        "npy, single": (".npy", _npy(_ROWS.astype("f4"))),
        "npy, whole numbers": (".npy", _npy(np.arange(36).reshape(12, 3))),
        "npz": (".npz", _npz(pool=_ROWS)),
        "parquet": (".parquet", _parquet(_columns())),
        "parquet, compressed": (".parquet", _parquet(_columns(), compression="zstd")),
        "parquet of lists": (".parquet", _parquet({"vector": list(_ROWS)})),
        "csv": (".csv", pd.DataFrame(_columns()).to_csv(index=False).encode()),
        "jsonl": (".jsonl", "\n".join(lines).encode()),
        "jsonl of lists": (".jsonl", "\n".join(lists).encode()),
    }


WHOLE = _whole()


def _header(text: str, payload: bytes = b"", version: int = 1) -> bytes:
    """An .npy file with a header of one's own."""
    encoded = text.encode("latin1")
    length = struct.pack("<H" if version == 1 else "<I", len(encoded))
    return b"\x93NUMPY" + bytes([version, 0]) + length + encoded + payload


def _described(shape: str, kind: str = "'<f8'", order: str = "False") -> bytes:
    text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}\n"
    return _header(text, _ROWS.tobytes())


class _Marks:
    def __reduce__(self) -> Any:
        return (MARKER.touch, ())


def _pickle_in_npy() -> bytes:
    text = "{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }\n"
    return _header(text, pickle.dumps([_Marks()] * 4))


def _archive(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, content)
    return buffer.getvalue()


def _twice() -> bytes:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _archive(("pool.npy", _npy(_ROWS)), ("pool.npy", _npy(_ROWS[:3])))


def _encrypted() -> bytes:
    """An archive that says it needs a password."""
    content = bytearray(_archive(("pool.npy", _npy(_ROWS))))
    for magic, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + flags] |= 1
    return bytes(content)


def _bomb(megabytes: int) -> bytes:
    """Little to read, much to hold: zeros whose header is honest."""
    width = megabytes * 2**15
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': (4, {width}), }}\n"
    return _archive(("pool.npy", _header(text) + bytes(megabytes * 2**20)))


def _nested(depth: int) -> bytes:
    return b'{"x": ' + b"[" * depth + b"1" + b"]" * depth + b"}\n"


# Files that nobody damaged by accident.
FORGED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nothing": (".npy", lambda: b""),
    "nothing in an archive": (".npz", lambda: _archive()),
    "empty csv": (".csv", lambda: b""),
    "empty jsonl": (".jsonl", lambda: b""),
    "empty parquet": (".parquet", lambda: b""),
    "magic alone": (".npy", lambda: b"\x93NUMPY"),
    "parquet's magic alone": (".parquet", lambda: b"PAR1PAR1"),
    "parquet, huge footer": (".parquet", lambda: b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1"),
    "zip's magic alone": (".npz", lambda: b"PK\x05\x06" + bytes(18)),
    "a pickle": (".npy", lambda: pickle.dumps(_Marks())),
    "a pickle in an archive": (".npz", lambda: _archive(("pool.npy", pickle.dumps(_Marks())))),
    "pickled objects": (".npy", _pickle_in_npy),
    "pickled objects in an archive": (".npz", lambda: _archive(("pool.npy", _pickle_in_npy()))),
    "huge shape": (".npy", lambda: _described("(1000000000, 1000)")),
    "larger than memory": (".npy", lambda: _described("(400000000, 1)")),
    "shape that overflows": (".npy", lambda: _described("(4294967296, 4294967296)")),
    "beyond any number": (".npy", lambda: _described(f"({10**40}, 3)")),
    "negative shape": (".npy", lambda: _described("(-12, 3)")),
    "shape of -1": (".npy", lambda: _described("(-1, 3)")),
    "shape of texts": (".npy", lambda: _described("('12', 3)")),
    "shape that is no tuple": (".npy", lambda: _described("12")),
    "shape of truths": (".npy", lambda: _described("(True, 3)")),
    "64 dimensions": (".npy", lambda: _described(f"({'1, ' * 64})")),
    "0 dimensions": (".npy", lambda: _described("()")),
    "column order": (".npy", lambda: _described("(12, 3)", order="True")),
    "order of text": (".npy", lambda: _described("(12, 3)", order="'no'")),
    "records": (".npy", lambda: _described("(36,)", "[('x', '<f8')]")),
    "texts": (".npy", lambda: _described("(12, 3)", "'<U2'")),
    "dates": (".npy", lambda: _described("(12, 3)", "'<M8[s]'")),
    "complex": (".npy", lambda: _described("(6, 3)", "'<c16'")),
    "type of no size": (".npy", lambda: _described("(12, 3)", "'<f3'")),
    "empty type": (".npy", lambda: _described("(1000000000000, 3)", "'|V0'")),
    "texts of no length": (".npy", lambda: _described("(1000000000000, 3)", "'<U0'")),
    "code in the header": (".npy", lambda: _header("__import__('os').getcwd()\n")),
    "header of lists": (".npy", lambda: _header("[" * 5000 + "\n")),
    "header of nothing": (".npy", lambda: _header("\n")),
    "later version": (".npy", lambda: _header("{}\n", version=9)),
    "header longer than the file": (".npy", lambda: b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{}"),
    "huge shape in an archive": (
        ".npz",
        lambda: _archive(("pool.npy", _described("(1000000000, 1000)"))),
    ),
    "a bomb": (".npz", lambda: _bomb(32)),
    "twice the same name": (".npz", _twice),
    "names that climb": (".npz", lambda: _archive(("../../pool.npy", _npy(_ROWS)))),
    "absolute names": (".npz", lambda: _archive(("/etc/pool.npy", _npy(_ROWS)))),
    "no .npy inside": (".npz", lambda: _archive(("readme.txt", b"hello"))),
    "an archive in an archive": (".npz", lambda: _archive(("pool.npz", _npz(pool=_ROWS)))),
    "many arrays": (".npz", lambda: _npz(**{f"a{i}": _ROWS for i in range(50)})),
    "encrypted": (".npz", _encrypted),
    "lzma": (".npz", lambda: _archive(("pool.npy", _npy(_ROWS)), method=zipfile.ZIP_LZMA)),
    "nested parquet": (".parquet", lambda: _parquet({"x": [[[1.0]], [[2.0]]]})),
    "structs": (".parquet", lambda: _parquet({"x": [{"y": {"z": 1.0}}] * 3})),
    "maps": (
        ".parquet",
        lambda: _parquet({"x": pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64()))}),
    ),
    "ragged lists": (".parquet", lambda: _parquet({"x": [[1.0], [1.0, 2.0]]})),
    "nulls": (".parquet", lambda: _parquet({"x": pa.nulls(5)})),
    "some nulls": (".parquet", lambda: _parquet({"x": [1.0, None, 2.0]})),
    "no rows": (".parquet", lambda: _parquet({"x": pa.array([], pa.float64())})),
    "no columns": (".parquet", lambda: _parquet(pa.table({}))),
    "dictionaries": (".parquet", lambda: _parquet({"x": pa.array(["a", "b"]).dictionary_encode()})),
    "decimals": (".parquet", lambda: _parquet({"x": pa.array([1, 2], pa.decimal128(5, 1))})),
    "half precision": (".parquet", lambda: _parquet({"x": np.arange(4, dtype="f2")})),
    "times": (".parquet", lambda: _parquet({"x": pa.array([1, 2], pa.timestamp("ns"))})),
    "no name": (".parquet", lambda: _parquet({"": [1.0, 2.0]})),
    "same name twice": (
        ".parquet",
        lambda: _parquet(pa.Table.from_arrays([pa.array([1.0])] * 2, ["x", "x"])),
    ),
    "only a header": (".csv", lambda: b"x,y\n"),
    "no header": (".csv", lambda: b"1.5,2.5\n3.5,4.5\n"),
    "ragged csv": (".csv", lambda: b"x,y\n1,2\n3\n4,5,6\n"),
    "open quote": (".csv", lambda: b'x,y\n1,"2\n3,4\n'),
    "NUL bytes": (".csv", lambda: b"x,y\n1,\x00\n\x00,2\n"),
    "byte order mark": (".csv", lambda: b"\xef\xbb\xbfx,y\n1,2\n3,5\n"),
    "two-byte text": (".csv", lambda: "x,y\n1,2\n".encode("utf-16")),
    "Latin": (".csv", lambda: b"x\xe9,y\n1,2\n3,4\n"),
    "Windows lines": (".csv", lambda: b"x,y\r\n1,2\r\n3,4\r\n"),
    "old Macintosh lines": (".csv", lambda: b"x,y\r1,2\r3,4\r"),
    "blank lines": (".csv", lambda: b"\n\n\n"),
    "infinite csv": (".csv", lambda: b"x,y\ninf,1\n-inf,2\n"),
    "csv without numbers": (".csv", lambda: b"x,y\na,b\n"),
    "huge numbers": (".csv", lambda: b"x\n1e400\n" + b"9" * 500 + b"\n"),
    "a long field": (".csv", lambda: b"x,y\n1," + b"a" * 10**6 + b"\n"),
    "same column twice": (".csv", lambda: b"x,x\n1,2\n"),
    "deep json": (".jsonl", lambda: _nested(500)),
    "deeper json": (".jsonl", lambda: _nested(20_000)),
    "half a line": (".jsonl", lambda: b'{"x": 1.0}\n{"x": 2.0'),
    "other fields": (".jsonl", lambda: b'{"x": 1.0}\n{"y": 2.0}\n'),
    "other kinds": (".jsonl", lambda: b'{"x": 1.0}\n{"x": "a"}\n'),
    "bare numbers": (".jsonl", lambda: b"1\n2\n"),
    "an array of objects": (".jsonl", lambda: b'[{"x": 1.0}]'),
    "no fields": (".jsonl", lambda: b"{}\n{}\n"),
    "NaN in json": (".jsonl", lambda: b'{"x": NaN}\n'),
    "a huge number": (".jsonl", lambda: b'{"x": 1e400}\n{"x": ' + b"9" * 400 + b"}\n"),
    "half a character": (".jsonl", lambda: b'{"x": "\\ud800"}\n'),
    "same field twice": (".jsonl", lambda: b'{"x": 1.0, "x": 2.0}\n'),
    "empty lists": (".jsonl", lambda: b'{"x": []}\n{"x": []}\n'),
    "structs in json": (".jsonl", lambda: b'{"x": {"y": 1.0}}\n'),
    "numbers in a text": (".txt", lambda: b"1 2\n3 4\n"),
}


@cache
def _forged(name: str) -> bytes:
    return FORGED[name][1]()


def _truncated(draw: st.DrawFn, content: bytes) -> bytes:
    return content[: draw(st.integers(0, len(content)))]


def _flipped(draw: st.DrawFn, content: bytes) -> bytes:
    changed = bytearray(content)
    for place in draw(st.lists(st.integers(0, len(content) * 8 - 1), min_size=1, max_size=8)):
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def _overwritten(draw: st.DrawFn, content: bytes) -> bytes:
    place = draw(st.integers(0, len(content)))
    junk = draw(st.binary(min_size=1, max_size=32))
    return content[:place] + junk + content[place + len(junk) :]


def _inserted(draw: st.DrawFn, content: bytes) -> bytes:
    place = draw(st.integers(0, len(content)))
    return content[:place] + draw(st.binary(min_size=1, max_size=32)) + content[place:]


def _cut_out(draw: st.DrawFn, content: bytes) -> bytes:
    place, length = draw(st.integers(0, len(content))), draw(st.integers(1, 64))
    return content[:place] + content[place + length :]


def _repeated(draw: st.DrawFn, content: bytes) -> bytes:
    return content + content[: draw(st.integers(1, len(content)))]


DAMAGES = {
    "truncated": _truncated,
    "bits flipped": _flipped,
    "overwritten": _overwritten,
    "inserted": _inserted,
    "cut out": _cut_out,
    "repeated": _repeated,
}


@st.composite
def damaged_files(draw: st.DrawFn) -> Damaged:
    """A file of the right or the wrong kind."""
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from(sorted(FORGED)))
        ending, content = FORGED[name][0], _forged(name)
    else:
        kind = draw(st.sampled_from(sorted(WHOLE)))
        ending, content = WHOLE[kind]
        damage = draw(st.sampled_from(sorted(DAMAGES)))
        name, content = f"{kind}, {damage}", DAMAGES[damage](draw, content)
    if draw(st.integers(0, 9)) == 7:
        ending = draw(st.sampled_from(ENDINGS))
    return Damaged(name, ending, content)

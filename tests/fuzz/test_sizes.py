"""Small files that ask for much memory: refused, left on disk, or read within what is allowed."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from uniproto import UniprotoError
from uniproto.data.tables import read_content
from uniproto.runtime.memory import PeakMemory

from .cases import cases
from .outcomes import attempt
from .places import new_folder

MEMORY = 2**27
_TIMES = 4  # what readers take beside the table that they make


@dataclass(frozen=True)
class Large:
    """A table or array that is small on disk."""

    ending: str
    rows: int
    columns: int
    text: int = 0  # characters of a text in every row

    def write(self) -> Path:
        path = new_folder() / f"pool{self.ending}"
        path.write_bytes(getattr(self, f"_{self.ending[1:]}")())
        return path

    def _names(self) -> list[str]:
        return [f"c{place}" for place in range(self.columns)]

    def _csv(self) -> bytes:
        line = ",".join("1" * self.columns) + "\n"
        return (",".join(self._names()) + "\n" + line * min(self.rows, 20)).encode()

    def _jsonl(self) -> bytes:
        names = self._names()
        lines = (
            json.dumps({names[row % self.columns]: 1}) for row in range(min(self.rows, 20_000))
        )
        return "\n".join(lines).encode()

    def _npz(self) -> bytes:
        buffer = io.BytesIO()
        width = max(1, min(self.columns, 20_000_000 // self.rows))
        np.savez_compressed(buffer, pool=np.zeros((self.rows, width), np.float32))
        return buffer.getvalue()

    def _parquet(self) -> bytes:
        buffer = io.BytesIO()
        columns = {name: pa.array(np.ones(self.rows, np.float32)) for name in self._names()[:5]}
        if self.text:
            once = pa.array(["x" * self.text])
            columns["text"] = pa.DictionaryArray.from_arrays(np.zeros(self.rows, np.int32), once)
        table = pa.table(columns)
        if self.text:  # as plain text, which a writer stores once
            table = table.replace_schema_metadata(None)
        pq.write_table(table, buffer, row_group_size=self.rows, store_schema=False)
        return buffer.getvalue()


large_files = st.builds(
    Large,
    ending=st.sampled_from([".csv", ".jsonl", ".npz", ".parquet", ".parquet"]),
    rows=st.sampled_from([10, 1000, 30_000, 1_000_000, 4_000_000]),
    columns=st.sampled_from([1, 5, 300, 30_000, 300_000]),
    text=st.sampled_from([0, 0, 10, 3000]),
)


@given(large_files)
@cases(15)
def test_reading_takes_what_is_allowed(file: Large) -> None:
    path = file.write()
    with PeakMemory() as peak:
        answer = attempt(file, lambda: read_content(path, memory=MEMORY))
    assert peak.bytes is None or peak.bytes < _TIMES * MEMORY, f"{peak.bytes:,} bytes"
    if isinstance(answer, UniprotoError):
        assert str(path) in str(answer)

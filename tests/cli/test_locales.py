"""Names with umlauts, in every locale: real processes, because a locale is a process's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

LOCALES = {
    "C": {"LC_ALL": "C"},
    "ASCII terminal": {"PYTHONIOENCODING": "ascii"},
}
pytestmark = pytest.mark.skipif(os.name == "nt", reason="paths are UTF-16 there")


def uniproto(locale: dict[str, str], folder: Path, *arguments: str) -> tuple[int, str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "uniproto", *arguments],
        capture_output=True,
        cwd=folder,
        env={**kept, **locale},
        timeout=120,
    )
    return done.returncode, done.stdout.decode("ascii", "replace"), done.stderr.decode("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "locale",
    ["C", "ASCII terminal"],
)
def test_inputs_outputs_and_columns_with_umlauts(tmp_path: Path, locale: str) -> None:
    folder = tmp_path / "Größe"
    folder.mkdir()
    values = np.random.default_rng(0).normal(size=(2, 20))
    columns = {"straße": [f"№ {row}" for row in range(20)], "a": values[0], "b": values[1]}
    pq.write_table(pa.table(columns), folder / "Häuser.parquet")
    asked = ("select", "Häuser.parquet", "-k", "2", "--id", "straße", "-o", "Auswahl für mich")
    status, said, err = uniproto(LOCALES[locale], folder, *asked)
    assert (status, err) == (0, "")
    assert (folder / "Auswahl für mich" / "manifest.json").is_file()
    if locale != "C":
        assert r"written to              Auswahl f\xfcr mich" in said
        return
    status, said, err = uniproto(LOCALES[locale], folder, "verify", "Auswahl für mich")
    assert (status, err) == (0, "")
    status, _, err = uniproto(LOCALES[locale], folder, "select", "Hüte.npy", "-k", "2", "-o", "x")
    assert status == 2
    assert err.count("\n") == 1
    assert "te.npy: there is no such file" in err
    assert "udc" not in err  # the name as it is, or its code points

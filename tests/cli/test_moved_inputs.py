"""`--input`: files that have moved are known by their digests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from uniproto.cli import main

X = np.random.default_rng(0).normal(size=(40, 3))


@pytest.fixture(autouse=True)
def files(inside: Path) -> None:
    np.save("pool.npy", X)
    np.save("target.npy", X[::2] + 0.1)
    arguments = ["pool.npy", "-k", "4", "--target", "target.npy", "-o", "out", "--quiet"]
    assert main(["select", *arguments]) == 0
    Path("other").mkdir()
    for name in ("pool", "target"):
        Path(f"{name}.npy").rename(f"other/moved-{name}.npy")


@pytest.mark.parametrize("command", ["verify", "certify", "report"])
def test_moved_files_are_found_by_their_digests(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "out"]) == 2
    told = capsys.readouterr().err
    assert "pool.npy" in told
    assert "If it has moved" in told
    assert "--input FILE" in told
    moved = ["--input", "other/moved-target.npy", "--input", "other/moved-pool.npy"]
    assert main([command, "out", *moved]) == 0

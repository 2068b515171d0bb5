"""What is said when Ray is missing or does not answer; listing files in stores."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from tests.refusals import refused

import uniproto
from uniproto.cli import main
from uniproto.scale.cluster import Cluster, ClusterError
from uniproto.scale.shards import digest_of, files_of


def test_without_ray_the_install_line_is_told(
    pool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    command = ["select", pool, "-k", "3", "--column", "vector", "--engine", "ray"]
    assert main([*command, "-o", str(tmp_path / "out")]) == 2
    assert "pip install '.[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_address_that_does_not_answer_is_told(no_ray: None) -> None:
    pytest.importorskip("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ClusterError, match=f"127.0.0.1:{port}' instead, which does not answer"):
        Cluster(address=f"127.0.0.1:{port}").__enter__()


def test_addresses_that_make_no_sense_are_refused(no_ray: None) -> None:
    pytest.importorskip("ray")
    with refused("address", uniproto.InvalidInputError):
        Cluster(address="somewhere").__enter__()
    with refused("num_cpus", uniproto.InvalidInputError):
        Cluster(address="auto", num_cpus=2)
    with refused("num_cpus", uniproto.InvalidInputError):
        Cluster(num_cpus=0)


@pytest.mark.parametrize(
    "option",
    [
        ["--include", "3"],
        ["--checkpoint"],
        ["--text", "name"],
        ["--neighbours", "faiss"],
    ],
)
def test_what_ray_does_not_offer_is_refused(
    option: list[str], pool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["select", pool, "-k", "3", "--column", "vector", "--engine", "ray", *option]
    assert main([*command, "-o", str(tmp_path / "out")]) == 2
    assert option[0] in capsys.readouterr().err


def test_addresses_of_stores_list_as_the_file_system_does(pool: str, tmp_path: Path) -> None:
    folder = Path(pool).parent
    local = files_of(pool)
    for address in (f"file://{folder}/*.parquet", f"file://{folder}"):
        found = files_of(address)
        assert [file.inside for file in found] == [file.inside for file in local]
        assert [file.content for file in found] == [file.content for file in local]
    one = files_of(f"file://{folder}/part-1.parquet")
    assert [file.inside for file in one] == ["part-1.parquet"]
    assert digest_of(one[0].content) == digest_of(local[1].content)
    with pytest.raises(uniproto.InputFileError, match="there are no"):
        files_of(f"file://{tmp_path}/*.parquet")
    with pytest.raises(uniproto.InputFileError, match="Arrow can open"):
        files_of("nosuch://bucket/pool/*.parquet")

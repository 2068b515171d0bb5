"""Corpora: every kind of file gives its documents, and damage is told with file and line."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refused

from uniproto.errors import InputFileError, InvalidInputError
from uniproto.lm.pretraining.corpus import corpus_files, corpus_identity, read_documents

ODD = "line\u2028separator\u0085next\x0cpage\rreturn, ünïcödé 日本"  # not the end of a line


def compressed(path: Path, content: bytes) -> Path:
    with pa.output_stream(str(path), compression="zstd") as stream:
        stream.write(content)
    return path


def json_lines(texts: list[str], name: str = "text") -> bytes:
    return "".join(json.dumps({name: t}, ensure_ascii=False) + "\n" for t in texts).encode()


def test_every_kind_of_file_gives_the_same_documents(tmp_path):
    texts = ["one", ODD, "x" * 3_000_000, "last"]  # one longer than a chunk
    (tmp_path / "a.jsonl").write_bytes(json_lines(texts))
    compressed(tmp_path / "b.jsonl.zst", json_lines(texts).rstrip(b"\n"))
    pq.write_table(pa.table({"n": range(4), "text": texts}), tmp_path / "c.parquet")
    for name in ("a.jsonl", "b.jsonl.zst", "c.parquet"):
        told = []
        assert list(read_documents([tmp_path / name], advance=told.append)) == texts
        assert sum(told) == (tmp_path / name).stat().st_size
    assert list(read_documents(corpus_files(tmp_path))) == 3 * texts


def test_a_text_file_is_cut_at_blank_lines_and_loses_nothing(tmp_path):
    paragraphs = [f"paragraph {n} " * (n % 50 + 1) for n in range(500)]
    text = "\n\n".join(paragraphs)
    (tmp_path / "a.txt").write_text(text, newline="\r\n")
    compressed(tmp_path / "b.txt.zst", text.encode())
    for name in ("a.txt", "b.txt.zst"):
        found = list(read_documents([tmp_path / name]))
        assert "".join(found) == text
        assert all(len(document) >= 256 for document in found[:-1])
        assert all(document.endswith("\n\n") for document in found[:-1])
        assert len(found) > 10


@pytest.mark.parametrize("line", ["word " * 20 + "\n", "endless"])
def test_text_without_blank_lines_is_cut_all_the_same(tmp_path, line):
    text = line * (1_000_000 // len(line))
    (tmp_path / "a.txt").write_text(text)
    found = list(read_documents([tmp_path / "a.txt"]))
    assert "".join(found) == text
    assert max(map(len, found)) <= 4 * 4096


def test_empty_documents_are_passed_over(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\n" + json_lines(["", "one", " \n"]) + b"\n\n")
    assert list(read_documents([tmp_path / "a.jsonl"])) == ["one"]


def test_folders_and_patterns(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("b.txt", "deep/a.JSONL", "deep/er/c.txt", "deep/readme.md"):
        (tmp_path / name).write_text("")
    names = [str(file.relative_to(tmp_path)) for file in corpus_files(tmp_path)]
    assert names == ["b.txt", "deep/a.JSONL", "deep/er/c.txt"]
    assert [file.name for file in corpus_files(f"{tmp_path}/**/*.txt")] == ["b.txt", "c.txt"]
    for wrong in ("none.txt", "*.parquet", "deep/readme.md"):
        with pytest.raises(InputFileError, match=r"\.jsonl\.zst"):
            corpus_files(tmp_path / wrong)


def test_identity_knows_a_changed_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a" * 3_000_000)
    before = corpus_identity([path])
    assert corpus_identity([path]) == before
    path.write_bytes(b"a" * 2_999_999 + b"b")
    assert corpus_identity([path]) != before


def test_damage_is_told_with_its_place(tmp_path):
    def error_of(name, content, kind=InputFileError, **options):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(kind) as caught:
            list(read_documents([tmp_path / name], **options))
        return str(caught.value)

    assert "Line 2 does not" in error_of("a.jsonl", b'{"text": "x"}\n{"text": \n')
    assert "Line 1 has NoneType" in error_of("b.jsonl", b'{"text": null}\n')
    told = error_of("c.jsonl", b'{"body": "x"}\n', InvalidInputError)
    assert "'column'" in told
    assert "body" in told
    assert "UTF-8" in error_of("d.txt", b"caf\xe9 au lait")
    assert "UTF-8" in error_of("e.txt", "é".encode()[:1])  # cut in the middle of a character
    assert "could not be read" in error_of("f.jsonl.zst", b"no zstd")
    assert "could not be read" in error_of("g.parquet", b"no parquet")
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "h.parquet")
    with refused("column", InvalidInputError):
        list(read_documents([tmp_path / "h.parquet"]))
    assert list(read_documents([tmp_path / "h.parquet"], column="body")) == ["x"]

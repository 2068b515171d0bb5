"""A journal survives kills, full disks, second writers and planted links."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from uniproto.errors import InputFileError, OutputError
from uniproto.runs.journal import Journal

WRITER = """
import sys
from pathlib import Path
from uniproto.runs.journal import Journal
journal = Journal(Path(sys.argv[1]), "the rows")
for number in range(len(journal.entries), 1000000):
    journal.append({"number": number, "text": "x" * 5000})
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def test_entries_come_back_in_order_and_as_they_were(path: Path) -> None:
    written = [{"text": "zwei\nZeilen, ü"}, [1, 2.5, None], "half a pair: \ud800"]
    journal = Journal(path, "the rows")
    journal.append(*written[:2])
    journal.append(written[2])
    assert journal.entries == written
    del journal
    assert path.read_bytes().count(b"\n") == 3
    assert Journal(path, "the rows").entries == written


def test_a_torn_line_is_ignored_and_removed_by_the_next_append(path: Path) -> None:
    torn = b'{"number": 0}\n{"numb'
    path.write_bytes(torn)
    journal = Journal(path, "the rows")
    assert journal.entries == [{"number": 0}]
    assert path.read_bytes() == torn  # it may be somebody else's file: reading changes nothing
    journal.append({"number": 1})
    assert path.read_bytes() == b'{"number": 0}\n{"number": 1}\n'


def test_fresh_forgets_what_was_there(path: Path) -> None:
    Journal(path, "the rows").append(1, 2)
    journal = Journal(path, "the rows", fresh=True)
    journal.append(3)
    assert path.read_bytes() == b"3\n"


@pytest.mark.parametrize("line", [b"no JSON", b"", b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_refused_and_left_alone(path: Path, line: bytes) -> None:
    content = b'{"number": 0}\n' + line + b'\n{"number": 1}\nrest'
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=r"must hold the rows.*damaged.*--out"):
        Journal(path, "the rows")
    assert path.read_bytes() == content


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_writer_killed_at_any_moment_loses_no_entry_and_doubles_none(path: Path) -> None:
    found = 0
    for wait in (0.02, 0.05, 0.11):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
        deadline = time.monotonic() + 60
        size = path.stat().st_size if path.exists() else 0
        while not path.exists() or path.stat().st_size == size:
            assert writer.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(wait)
        writer.kill()
        writer.wait()
        entries = Journal(path, "the rows").entries
        assert [entry["number"] for entry in entries] == list(range(len(entries)))
        assert len(entries) > found
        found = len(entries)


def test_a_second_writer_is_refused_until_the_first_is_gone(path: Path) -> None:
    pytest.importorskip("fcntl")
    first = Journal(path, "the rows")
    first.append(1)
    with pytest.raises(OutputError, match=r"the rows must be written by one run at a time"):
        Journal(path, "the rows", fresh=True)
    assert path.read_bytes() == b"1\n"
    del first
    assert Journal(path, "the rows").entries == [1]


def test_a_planted_link_is_not_followed(path: Path) -> None:
    victim = path.with_name("thesis.txt")
    victim.write_text("ten years")
    path.symlink_to(victim)
    with pytest.raises(OutputError, match="it is a link"):
        Journal(path, "the rows", fresh=True)
    assert victim.read_text() == "ten years"


def test_a_full_disk_is_one_clear_error_and_leaves_complete_lines(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(path, "the rows")
    journal.append({"number": 0})
    write = os.write

    def full_after_a_few_bytes(descriptor: int, data: bytes) -> int:
        if len(data) > 10:
            return write(descriptor, data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full_after_a_few_bytes)
        with pytest.raises(OutputError, match=r"the rows must go to.*No space left.*free some"):
            journal.append({"number": 1, "text": "more than a few bytes"})
    assert path.read_bytes() == b'{"number": 0}\n'
    assert journal.entries == [{"number": 0}]
    journal.append({"number": 1})  # somebody made room
    lines = path.read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [0, 1]


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"the rows must go to a folder that can be written"):
        Journal(tmp_path / "file" / "rows.jsonl", "the rows")

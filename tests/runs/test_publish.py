"""A result replaces another all at once; nothing of anybody else's is ever touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import uniproto
from uniproto.cli import main
from uniproto.errors import InputFileError, OutputError
from uniproto.runs.atomic import atomic_write
from uniproto.runs.lock import PRIVATE, locked
from uniproto.runs.publish import publishing, write_record

X = np.random.default_rng(3).normal(size=(40, 3))
FILES = {"selection.parquet", "plan.npz", "manifest.json"}

# Saves a selection over another one, killed at the N-th call that changes a disk, for every N.
# All reading and writing happens in children: a process whose libraries have begun threads of their
# own must not be forked.
KILLS = """
import os, signal, sys, traceback
from pathlib import Path
from typing import Any
import pandas, pyarrow.parquet, uniproto.selection.storage  # once, not in every child

folder, old, new = map(Path, sys.argv[1:])
CHANGES = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir", "open")

def in_child(work, *args):
    if not (child := os.fork()):
        try:
            work(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]

def save(path):
    uniproto.Selection.load(path).save(folder)

def save_killed_at(call):
    selection, left = uniproto.Selection.load(new), [call]
    def counted(change):
        def changed(*args, **options):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*args, **options)
        return changed
    for name in CHANGES:
        setattr(os, name, counted(getattr(os, name)))
    selection.save(folder)

def check(call, replaced):
    found = uniproto.Selection.load(folder)
    before, after = (uniproto.Selection.load(path).indices.tolist() for path in (old, new))
    assert found.indices.tolist() in ([after] if replaced else [before, after]), call
    assert found.plan.shape[0] == found.k
    assert (folder / "mine.txt").read_text() == "mine"

call, replaced = 0, False
while not replaced:
    call += 1
    assert in_child(save, old) == 0
    status = in_child(save_killed_at, call)
    assert status in (0, signal.SIGKILL), status
    replaced = status == 0
    assert in_child(check, call, replaced) == 0
print(call)
"""

# Saves its own selection again and again, beside others that do the same.
WRITES = """
import sys, uniproto
selection = uniproto.Selection.load(sys.argv[2])
for _ in range(25):
    selection.save(sys.argv[1])
"""


def selections(folder: Path, *ks: int) -> list[Path]:
    return [uniproto.select(X, k, seed=k).save(folder / f"k{k}") for k in ks]


@pytest.mark.slow
def test_killed_at_every_moment_of_an_overwrite(tmp_path: Path) -> None:
    folder, two = tmp_path / "result", selections(tmp_path, 4, 7)
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    run = [sys.executable, "-W", "ignore", "-c", KILLS, str(folder), *map(str, two)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20  # so many moments there were


@pytest.mark.slow
def test_writers_side_by_side_leave_one_whole_result(tmp_path: Path) -> None:
    folder, some = tmp_path / "result", selections(tmp_path, 3, 5, 8)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITES, str(folder), str(each)]) for each in some
    ]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if folder.exists() and (folder / "manifest.json").exists():
            seen.add(uniproto.Selection.load(folder).k)  # whole at every moment
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert seen <= {3, 5, 8}
    assert uniproto.Selection.load(folder).k in (3, 5, 8)
    assert {path.name for path in folder.iterdir()} == FILES


def test_a_folder_that_another_writer_removes_in_between_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, errors = Path.mkdir, [FileExistsError(17, "there"), FileNotFoundError(2, "gone")]

    def mkdir(path: Path, *given: Any, **named: Any) -> None:
        if path.name == PRIVATE and errors:
            raise errors.pop()
        make(path, *given, **named)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    folder = uniproto.select(X, 4).save(tmp_path / "result")
    assert errors == []
    assert {path.name for path in folder.iterdir()} == FILES
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / PRIVATE).write_text("a file of somebody's")
    with pytest.raises(OutputError, match="File exists"):
        uniproto.select(X, 4).save(tmp_path / "other")


def test_a_plan_of_another_selection_is_noticed(tmp_path: Path) -> None:
    one, other = selections(tmp_path, 4, 5)
    (one / "plan.npz").write_bytes((other / "plan.npz").read_bytes())
    with pytest.raises(InputFileError, match=r"plan\.npz is not the file that manifest\.json"):
        uniproto.Selection.load(one)


# Sets that a kill has left in the hidden folder, or that somebody has planted there


def plant(folder: Path, record: object, **files: str) -> Path:
    """Leave a staged set in a folder, as a run that was killed would, or somebody who means ill."""
    stage = folder / PRIVATE / "manifest.json.new"
    stage.mkdir(parents=True)
    for name, content in files.items():
        (stage / f"{name}.txt").write_text(content)
    text = record if isinstance(record, str) else json.dumps({"uniproto": "0.1.0", "files": record})
    (stage / "manifest.json").write_text(text)
    return stage


def visible(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("digest", ["", sha256(b"theirs").hexdigest()])
def test_a_planted_set_replaces_no_file_of_the_user(tmp_path: Path, digest: str) -> None:
    (folder,) = selections(tmp_path, 4)
    (folder / "notes.txt").write_text("mine")
    plant(folder, {"notes.txt": digest}, notes="theirs")
    before = visible(folder)
    with pytest.raises(OutputError, match=r"holds notes\.txt, which uniproto did not write"):
        uniproto.select(X, 3).save(folder)
    assert visible(folder) == before


@pytest.mark.parametrize("name", ["../notes.txt", "..", ".", "", "a/b", "/notes.txt", "a\\b"])
def test_names_in_other_folders_are_not_followed(tmp_path: Path, name: str) -> None:
    (folder,) = selections(tmp_path, 4)
    (tmp_path / "notes.txt").write_text("mine")
    old = json.loads((folder / "manifest.json").read_text())
    old["files"][name] = sha256(b"mine").hexdigest()  # gone in the new set
    (folder / "manifest.json").write_text(json.dumps(old))
    plant(folder, {name: sha256(b"mine").hexdigest()})
    uniproto.select(X, 3).save(folder)
    assert uniproto.Selection.load(folder).k == 3
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert {path.name for path in folder.iterdir()} == FILES


@pytest.mark.parametrize("record", ["[]", "{", '{"files": {"selection.parquet": ""}}'])
def test_a_staged_record_that_is_none_of_ours_does_not_count(tmp_path: Path, record: str) -> None:
    (folder,) = selections(tmp_path, 4)
    plant(folder, record, notes="theirs")
    assert uniproto.Selection.load(folder).k == 4
    uniproto.select(X, 3).save(folder)
    assert uniproto.Selection.load(folder).k == 3
    assert {path.name for path in folder.iterdir()} == FILES


def test_a_staged_set_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    (folder,) = selections(tmp_path, 4)
    stage = plant(folder, {"notes.txt": sha256(b"mine").hexdigest()}, notes="mine")
    stage.rename(tmp_path / "elsewhere")
    stage.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError):
        uniproto.select(X, 3).save(folder)
    assert (tmp_path / "elsewhere" / "notes.txt").read_text() == "mine"
    assert not (folder / "notes.txt").exists()


def interrupted(monkeypatch: pytest.MonkeyPatch, old: Path, new: Path, moves: int) -> None:
    """Save a result over another, and stop after so many of its files have been moved."""
    selection, move, left = uniproto.Selection.load(new), Path.replace, [moves]

    def replace(path: Path, target: Path) -> Path:
        if path.parent.name.endswith(".new"):
            if left[0] == 0:
                raise OSError(5, "the machine is gone")
            left[0] -= 1
        return move(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(OutputError, match="the machine is gone"):
            selection.save(old)


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_interrupted_moves_are_read_in_place_and_finished_by_the_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    old, new, other = selections(tmp_path, 4, 7, 3)
    interrupted(monkeypatch, old, new, moves)
    before = visible(old)
    found = uniproto.Selection.load(old)
    assert found.indices.tolist() == uniproto.Selection.load(new).indices.tolist()
    assert visible(old) == before  # reading moves nothing
    uniproto.Selection.load(other).save(old)
    assert uniproto.Selection.load(old).k == 3
    assert {path.name for path in old.iterdir()} == FILES


@pytest.mark.parametrize("moves", [0, 1])
def test_a_file_that_was_edited_meanwhile_is_not_replaced_by_the_rest_of_the_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    old, new = selections(tmp_path, 4, 7)
    interrupted(monkeypatch, old, new, moves)
    (old / "selection.parquet").write_text("mine")
    before = visible(old)
    with pytest.raises(OutputError, match=r"selection\.parquet .*changed since.*Move it away"):
        uniproto.select(X, 3).save(old)
    assert visible(old) == before
    (old / "selection.parquet").unlink()
    uniproto.select(X, 3).save(old)
    assert uniproto.Selection.load(old).k == 3


def test_a_read_only_folder_with_interrupted_moves_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = selections(tmp_path, 4, 7)
    interrupted(monkeypatch, old, new, 1)
    monkeypatch.setattr("uniproto.runs.publish.locked", None)  # readers take no lock
    assert uniproto.Selection.load(old).k == 7


# Files of the user


@pytest.mark.parametrize("pool_name", ["table.csv", "pool.npy"])
def test_a_table_that_a_person_has_edited_is_not_replaced(
    tmp_path: Path, pool: Path, pool_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Labels added by hand: refused before the work, also where the new result has no such file."""
    table, out = tmp_path / "table.csv", tmp_path / "out"
    np.savetxt(table, X, delimiter=",", header="a,b,c", comments="")
    assert command("select", table, "-k", 3, "-o", out) == 0
    lines = (out / "prototypes.csv").read_text().splitlines()
    edited = "\n".join(f"{line},label" for line in lines)
    (out / "prototypes.csv").write_text(edited)
    before = visible(out)
    assert command("select", tmp_path / pool_name, "-k", 4, "-o", out) == 2
    error = capsys.readouterr().err
    assert f"{out / 'prototypes.csv'} has been changed since uniproto wrote it" in error
    assert "Move it away, or choose another folder with --out." in error
    assert visible(out) == before
    assert command("certify", out) == 0  # which does not touch it
    assert (out / "prototypes.csv").read_text() == edited
    (out / "prototypes.csv").rename(out / "labelled.csv")
    assert command("select", tmp_path / pool_name, "-k", 4, "-o", out) == 0
    assert (out / "labelled.csv").read_text() == edited


def test_a_link_in_place_of_a_file_of_ours_is_not_replaced(tmp_path: Path) -> None:
    (folder,) = selections(tmp_path, 4)
    (folder / "plan.npz").rename(tmp_path / "plan.npz")
    (folder / "plan.npz").symlink_to(tmp_path / "plan.npz")
    with pytest.raises(OutputError, match="changed since"):
        uniproto.select(X, 3).save(folder)
    assert (folder / "plan.npz").is_symlink()


@pytest.mark.parametrize("words", ["select {pool} -k 2", "compare {pool} -k 2", "path {pool}"])
def test_an_output_whose_name_is_not_utf_8_is_refused_before_the_work(
    tmp_path: Path, pool: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / os.fsdecode(b"out\xff")
    np.save(pool, np.full((3, 2), np.nan))  # which the work would refuse
    assert command(*words.format(pool=pool).split(), "-o", out) == 2
    assert "the name must be UTF-8" in capsys.readouterr().err
    with pytest.raises(OutputError, match="must be UTF-8"):
        uniproto.select(X, 3).save(out)


@pytest.mark.parametrize("words", ["select {pool} -k 3 -o {out}", "certify {out}", "report {out}"])
def test_files_that_a_kill_has_left_go_with_the_next_command(
    tmp_path: Path, pool: Path, words: str
) -> None:
    out = tmp_path / "out"
    assert command("select", pool, "-k", 3, "-o", out) == 0
    (out / PRIVATE).mkdir()
    left = out / f".uniproto-{'a' * 32}"
    left.write_text("half")
    (out / ".uniproto-notes").write_text("mine")
    with atomic_write(out / "other") as file:  # of a writer that lives
        assert command(*words.format(pool=pool, out=out).split()) == 0
        file.write(b"whole")
    assert not left.exists()
    assert (out / "other").read_bytes() == b"whole"
    assert (out / ".uniproto-notes").read_text() == "mine"


# What is said after Ctrl-C

STOPPED = """
import os, signal, sys
from uniproto.cli import main
from {module} import {name} as wanted
import {module}

signal.signal(signal.SIGINT, signal.default_int_handler)  # which is off in the background

def stopped(*arguments, **options):
    {before}
    found = wanted(*arguments, **options)
    {after}
    return found

{module}.{name} = stopped
sys.exit(main(sys.argv[1:]))
"""
SIGNAL = "os.kill(os.getpid(), signal.{})"


@pytest.mark.parametrize(
    ("number", "place", "when", "complete"),
    [
        ("SIGINT", "uniproto.selection.storage.write_record", "after", False),
        ("SIGTERM", "uniproto.runs.publish._commit", "before", True),
        ("SIGINT", "uniproto.runs.publish._commit", "after", True),
        ("SIGTERM", "uniproto.runs.publish._move", "after", True),
        ("SIGINT", "uniproto.cli.select.printable", "before", True),
    ],
)
def test_what_is_said_after_a_signal_is_so(
    tmp_path: Path, pool: Path, number: str, place: str, when: str, complete: bool
) -> None:
    word, status = {"SIGINT": ("interrupted", 130), "SIGTERM": ("terminated", 143)}[number]
    module, _, name = place.rpartition(".")
    signals = {"before": "pass", "after": "pass", when: SIGNAL.format(number)}
    code = STOPPED.format(module=module, name=name, **signals)
    out = tmp_path / "out"
    words = [sys.executable, "-c", code, "select", str(pool), "-k", "3", "-o", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    said = f"the result is complete in {out}" if complete else "no result was written"
    assert done.stderr.splitlines()[-1] == f"uniproto: {word}; {said}."
    assert done.returncode == status
    assert (out / "manifest.json").exists() == complete
    if complete:
        assert uniproto.Selection.load(out).k == 3
        assert {path.name for path in out.iterdir()} == FILES


@pytest.mark.parametrize(
    ("module", "start"),
    [("numpy", "-m"), ("scipy.sparse", "script"), ("uniproto.cli.select", "script")],
)
def test_ctrl_c_during_imports_is_one_line(tmp_path: Path, module: str, start: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Stop())\n"
    )
    script = tmp_path / "uniproto"
    script.write_text("import sys\nfrom uniproto.cli import main\nsys.exit(main())\n")
    begin = ["-m", "uniproto"] if start == "-m" else [str(script)]
    paths = [str(tmp_path), str(Path(uniproto.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, *begin, "--version"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path / "..",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "uniproto: interrupted; nothing was written.\n"


def command(*words: object) -> int:
    return main([*map(str, words), "--quiet"])


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / "pool.npy"
    np.save(path, X)
    return path


@pytest.mark.parametrize("name", [*sorted(FILES), "prototypes.parquet", "certificate.npz"])
def test_files_of_others_are_never_replaced(
    tmp_path: Path, pool: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text('{"name": "mine"}')
    assert command("select", pool, "-k", 3, "-o", out) == 2
    assert f"holds {name}, which uniproto did not write" in capsys.readouterr().err
    assert {path.name for path in out.iterdir()} == {name}
    assert (out / name).read_text() == '{"name": "mine"}'


def test_a_page_of_others_stays(tmp_path: Path, pool: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("<p>mine</p>")
    (out / "notes.txt").write_text("mine")
    for k in (3, 4):
        assert command("select", pool, "-k", k, "-o", out) == 0
    assert (out / "report.html").read_text() == "<p>mine</p>"
    assert (out / "notes.txt").read_text() == "mine"
    assert command("report", out) == 2
    assert (out / "report.html").read_text() == "<p>mine</p>"


def test_a_page_of_ours_goes_with_its_result(tmp_path: Path, pool: Path) -> None:
    out = tmp_path / "out"
    assert command("select", pool, "-k", 3, "-o", out) == 0
    assert command("report", out) == 0
    assert command("report", out) == 0  # in place of the old one
    assert command("select", pool, "-k", 4, "-o", out) == 0
    assert not (out / "report.html").exists()


@pytest.mark.parametrize("words", [["select", "-k", 2], ["compare", "-k", 2], ["path", "--ks", 2]])
def test_an_output_that_contains_an_input_is_refused(
    tmp_path: Path, pool: Path, words: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    before = pool.read_bytes()
    for out in (tmp_path, tmp_path / "sub" / ".."):
        (tmp_path / "sub").mkdir(exist_ok=True)
        assert command(words[0], pool, *words[1:], "-o", out) == 2
        assert "is or contains" in capsys.readouterr().err
    assert pool.read_bytes() == before


def test_a_result_is_never_its_own_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "pool.csv", tmp_path / "out"
    np.savetxt(table, X, delimiter=",", header="a,b,c", comments="")
    assert command("select", table, "-k", 9, "--metric", "euclidean", "-o", out) == 0
    before = (out / "prototypes.parquet").read_bytes()
    assert command("select", out / "prototypes.parquet", "-k", 5, "-o", out) == 2
    assert "an input" in capsys.readouterr().err
    assert (out / "prototypes.parquet").read_bytes() == before


def test_an_input_that_looks_like_a_checkpoint_stays(tmp_path: Path, pool: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    features = out / "checkpoint_features.npz"
    np.savez(features, X)
    assert command("select", features, "-k", 3, "--checkpoint", "-o", out) == 2
    assert command("select", pool, "-k", 3, "--checkpoint", "-o", out) == 0
    assert features.exists()


def test_a_link_under_our_name_leaves_the_file_it_leads_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    folder = tmp_path / "out"
    (folder / PRIVATE).mkdir(parents=True)
    (folder / PRIVATE / "run.lock").symlink_to(precious)
    with locked(folder):
        pass
    assert not folder.exists() or not (folder / PRIVATE / "run.lock").exists()
    link = tmp_path / "link.jsonl"
    link.symlink_to(precious)
    with atomic_write(link) as file:
        file.write(b"ours")
    assert not link.is_symlink()
    assert precious.read_text() == "mine"


def test_a_hidden_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    folder.mkdir()
    (folder / PRIVATE).symlink_to(elsewhere)
    with pytest.raises(OutputError, match="is a link"):
        uniproto.select(X, 3).save(folder)
    assert list(elsewhere.iterdir()) == []


def test_a_lock_is_not_emptied_and_goes_when_done(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        with pytest.raises(OutputError, match="another run is writing"), locked(tmp_path / "run"):
            pass
        (tmp_path / "run" / "metrics.jsonl").write_text("{}")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["metrics.jsonl"]


def test_a_run_publishes_into_its_own_folder(tmp_path: Path) -> None:
    with locked(tmp_path), publishing(tmp_path, "record.json") as stage:
        write_record(stage, "record.json", {"what": "a test"})
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_a_refused_publication_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted() -> None:
        with publishing(tmp_path / "a" / "b", "record.json") as stage:
            (stage / "half").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pool", ["data", "data/**/*.parquet"])
@pytest.mark.parametrize("command", ["select", "compare", "path"])
def test_an_output_inside_an_input_is_refused(
    command: str,
    pool: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The next run would read the files of the result as rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"x": X[:, 0], "y": X[:, 1]}), "data/part.parquet")
    count = [] if command == "path" else ["-k", "2"]
    assert main([command, pool, *count, "-o", "data/out"]) == 2
    assert "data/out is inside data, an input" in capsys.readouterr().err
    assert not (tmp_path / "data" / "out").exists()
    assert main(["select", "data/*.parquet", "-k", "2", "-o", "data/out", "--quiet"]) == 0

"""Sets of files that replace one another all at once, in a folder that may hold other files.

A set is described by its *record*: a JSON file that names the version of uniproto and, under
`files`, every other file of the set with its digest. A file is replaced or removed only if it has
the digest that the folder's record names.

New files are completed in `.uniproto/RECORD.part`. Renaming that folder to `.uniproto/RECORD.new`
makes the new set the current one. Its files are then moved to their places, the record last. After
a kill, the record that is still in RECORD.new says what is left to move: readers find the files
there, and the next writer moves them.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from os.path import exists
from pathlib import Path
from typing import Any

from uniproto.errors import OutputError
from uniproto.runs.atomic import atomic_write, remove_partials, require_utf8, sync, writing
from uniproto.runs.lock import PRIVATE, locked, private_folder
from uniproto.runs.records import plain, sha256_of
from uniproto.runtime.interrupts import uninterrupted
from uniproto.version import __version__

# In the first lines of every page.
PAGE_MARK = '<meta name="generator" content="uniproto">'
_PARTIAL, _CURRENT = ".part", ".new"  # endings of a staged set: being written, and complete
_PLAIN_NAME = re.compile(r"(?!\.\.?$)[^/\\\0]+")
_PATIENCE = 60.0  # seconds to wait for another writer, who needs about one


@contextmanager
def publishing(folder: Path, record: str, pages: Iterable[str] = ()) -> Iterator[Path]:
    """Yield an empty folder for a set of files, which replaces the old one when the block ends.

    The block must end with `write_record`. Our `pages` about the old set are removed with it.
    """
    require_utf8(folder)
    with writing(folder, "the output"), locked(folder, "a result", wait=_PATIENCE):
        _finish(folder)
        stage = private_folder(folder) / f"{record}{_PARTIAL}"
        stage.mkdir()
        try:
            yield stage
            with uninterrupted():
                _commit(folder, stage, record, pages)
                _finish(folder)
                note_completed(folder)
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise


@dataclass
class Noted:
    """What an interrupted command leaves behind: complete results, and saved work."""

    completed: list[Path] = field(default_factory=list)
    saved: str = ""


_noted: ContextVar[Noted | None] = ContextVar("noted", default=None)


@contextmanager
def noting(found: Noted) -> Iterator[None]:
    """Collect what is completed and saved in a block."""
    before = _noted.set(found)
    try:
        yield
    finally:
        _noted.reset(before)


def note_completed(path: Path) -> None:
    """Note that a result is complete."""
    if (found := _noted.get()) is not None:
        found.completed.append(path)


def note_saved(what: str) -> None:
    """Note that work has been saved, from which the same command would continue."""
    if (found := _noted.get()) is not None:
        found.saved = what


def write_record(
    stage: Path, name: str, content: Mapping[str, Any], also: Mapping[str, str] | None = None
) -> None:
    """Describe the files of a stage; `also` are files of the old set that stay, by digest."""
    digests = {file.name: sha256_of(file) for file in sorted(stage.iterdir())}
    described = {"uniproto": __version__, **content, "files": {**(also or {}), **digests}}
    text = json.dumps(described, indent=2, ensure_ascii=False, default=plain) + "\n"
    # Bytes of paths that are not UTF-8 become JSON escapes.
    (stage / name).write_text(text, encoding="utf-8", errors="backslashreplace")


def require_publishable(folder: Path, record: str, names: Iterable[str]) -> None:
    """Refuse, before the work, a folder in which these names are taken by other files."""
    if place_of(folder, record, record).parent != folder:
        with locked(folder, "a result", wait=_PATIENCE):
            _finish(folder)
    _require_ours(folder, record, {*names, *files_of(folder, record)})


def _require_ours(
    folder: Path, record: str, names: Iterable[str], new: Mapping[str, str] | None = None
) -> None:
    """Refuse to replace files that have neither the recorded digest nor that of the `new` set."""
    written = files_of(folder, record)
    ours = [record] if _is_ours(folder / record) else []
    require_unused(folder, {record, *names} - {*ours, *written})
    for name in sorted(written.keys() & set(names)):
        path, known = folder / name, {written[name], (new or {}).get(name)}
        is_file = path.is_file() and not path.is_symlink()
        if os.path.lexists(path) and not (is_file and sha256_of(path) in known):
            raise OutputError(
                f"{path} has been changed since uniproto wrote it. Move it away, or choose another "
                "folder with --out."
            )


def require_unused(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder in which these names, which a command is about to write, exist."""
    for name in sorted(names):
        if os.path.lexists(folder / name):
            raise OutputError(
                f"{folder} holds {name}, which uniproto did not write there. Choose another folder "
                "with --out, or move that file away."
            )


def files_of(folder: Path, record: str) -> dict[str, str]:
    """The digests of the files that a record names, all in its own folder."""
    files = _read_json(folder / record).get("files")
    named = files.items() if isinstance(files, dict) else ()
    return {name: str(digest) for name, digest in named if _PLAIN_NAME.fullmatch(name)}


def place_of(folder: Path, record: str, name: str) -> Path:
    """Where a file of the current set is: in its place, or where a kill has left it."""
    stage = folder / PRIVATE / f"{record}{_CURRENT}"
    is_left = _is_ours(stage / record) and (stage / name).is_file()
    return stage / name if is_left else folder / name


def read_published(folder: Path, record: str, name: str, digest: str | None = None) -> bytes:
    """The content of a file of the set, which must have this digest."""
    try:
        content = place_of(folder, record, name).read_bytes()
    except FileNotFoundError:  # moved to its place in the meantime
        content = (folder / name).read_bytes()
    if digest is not None and hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{name} is not the file that {record} names")
    return content


def write_page(path: Path, page: str) -> None:
    """Write a page. An existing file is replaced only if it is a page of uniproto."""
    if path.is_dir():
        raise OutputError(f"{path} is a folder. Name a file in it, such as {path / 'page.html'}.")
    if os.path.lexists(path) and not is_our_page(path):
        raise OutputError(
            f"{path} is a file that uniproto did not write. Choose another name, or move it away."
        )
    with writing(path, "the page"):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_partials(path.parent)
        with atomic_write(path, note_completed) as file:
            file.write(page.encode("utf-8", "backslashreplace"))


def is_our_page(path: Path) -> bool:
    """Whether a file is a page that uniproto has written."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return PAGE_MARK.encode() in file.read(4096)


def refuse_inputs_inside(output: Path, inputs: Iterable[str]) -> None:
    """Refuse an output that is, or contains, something the command reads, or lies inside of it.

    Inputs are paths or patterns; those that do not exist, such as names on a hub, are ignored.
    """
    place = output.resolve()
    for text in inputs:
        for path in glob.glob(text) or [text]:
            read = Path(path).resolve()
            if exists(path) and (place == read or place in read.parents):
                raise OutputError(
                    f"{output} is or contains {path}, an input. Choose another place with --out."
                )
        # What a folder or a pattern such as data/**/*.parquet leads to, the next run would read.
        folder = Path(text.partition("**")[0])
        if ("**" in text or folder.is_dir()) and folder.resolve() in place.parents:
            raise OutputError(
                f"{output} is inside {folder}, an input. Choose another place with --out."
            )


def _commit(folder: Path, stage: Path, record: str, pages: Iterable[str]) -> None:
    """Make the new set the current one, by one rename."""
    staged, old = {file.name for file in stage.iterdir()}, files_of(folder, record)
    _require_ours(folder, record, staged | (old.keys() - files_of(stage, record).keys()))
    for path in (*stage.iterdir(), stage):
        sync(path)
    for page in pages:
        if is_our_page(folder / page):
            (folder / page).unlink()
    stage.rename(stage.with_suffix(_CURRENT))
    sync(stage.parent)


def _finish(folder: Path) -> None:
    """Move the files of current sets to their places; remove what killed runs have left."""
    private = folder / PRIVATE
    for stage in [*private.glob(f"*{_CURRENT}"), *private.glob(f"*{_PARTIAL}")]:
        if stage.suffix == _CURRENT and not stage.is_symlink() and _is_ours(stage / stage.stem):
            _move(folder, stage, stage.stem)
        shutil.rmtree(stage)
    for place in (folder, private):
        remove_partials(place)


def _move(folder: Path, stage: Path, record: str) -> None:
    """Replace the old set; its record goes last, because it says what may be replaced."""
    new, old = files_of(stage, record), files_of(folder, record)
    staged, gone = [name for name in new if (stage / name).is_file()], old.keys() - new.keys()
    _require_ours(folder, record, {*staged, *gone}, new)
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    for name in staged:
        (stage / name).replace(folder / name)
    sync(folder)
    (stage / record).replace(folder / record)
    sync(folder)


def _is_ours(record: Path) -> bool:
    return isinstance(_read_json(record).get("uniproto"), str)


def _read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one if it cannot be read."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}

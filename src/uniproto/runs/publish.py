"""Sets of files that replace one another all at once, beside whatever else a folder holds.

A set is described by its *record*: a JSON file that names the version of uniproto and, under
`files`, every other file of the set with its digest. Only files that have the digest which the
record of the folder names are ever replaced or removed; anything else there belongs to somebody.

New files are first completed in our hidden folder. Then a note of where they lie is written: from
that moment on the new set is the one that counts. Whoever reads it finds its files wherever they
are, and whoever writes next finishes the moves of a run that was killed. Before that moment the old
set has not been touched.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from os.path import exists
from pathlib import Path
from typing import Any, NamedTuple

from uniproto.errors import InputFileError, OutputError, UniprotoError
from uniproto.runs.atomic import (
    atomic_write,
    remove_partials,
    require_utf8,
    sync,
    unwritable,
)
from uniproto.runs.lock import PRIVATE, locked, private_folder
from uniproto.runs.records import plain, sha256_of
from uniproto.runtime.interrupts import uninterrupted
from uniproto.version import __version__

# What every page of ours says in its first lines.
PAGE_MARK = '<meta name="generator" content="uniproto">'
_PENDING = "publish.json"
_STAGE = re.compile(r"stage-[0-9a-f]{32}")
_PLAIN_NAME = re.compile(r"[^/\\\0]+")
_PATIENCE = 60.0  # seconds; publishing takes one


@contextmanager
def publishing(folder: Path, record: str, pages: Iterable[str] = ()) -> Iterator[Path]:
    """Yield an empty folder for a set of files, which replaces the old one when the block ends.

    The block must end with `write_record`. Pages of ours named in `pages` tell of the old set, so
    they go with it.
    """
    require_utf8(folder)
    try:
        with locked(folder, "a result", wait=_PATIENCE):
            _finish_moves(folder)
            stage = private_folder(folder) / f"stage-{uuid.uuid4().hex}"
            stage.mkdir()
            try:
                yield stage
                with uninterrupted():
                    _commit(folder, stage, record, pages)
                    _finish_moves(folder)
                    note_completed(folder)
            except BaseException:
                if _pending(folder) is None:  # else the new set counts already
                    shutil.rmtree(stage, ignore_errors=True)
                raise
    except OSError as error:
        if isinstance(error, UniprotoError):
            raise
        raise unwritable(folder, error) from error


@dataclass
class Noted:
    """What a command that is interrupted leaves: complete results, and what it can go on from."""

    completed: list[Path] = field(default_factory=list)
    saved: str = ""


_noted: ContextVar[Noted | None] = ContextVar("noted", default=None)


@contextmanager
def noting(found: Noted) -> Iterator[None]:
    """Note what is completed and saved inside."""
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
    """Note what the same command would go on from, now that it is on the disk."""
    if (found := _noted.get()) is not None:
        found.saved = what


def write_record(
    stage: Path, name: str, content: Mapping[str, Any], also: Mapping[str, str] | None = None
) -> None:
    """Describe the files of a stage; `also` are files of the old set that stay, by digest."""
    digests = {file.name: sha256_of(file) for file in sorted(stage.iterdir())}
    described = {"uniproto": __version__, **content, "files": {**(also or {}), **digests}}
    text = json.dumps(described, indent=2, ensure_ascii=False, default=plain) + "\n"
    # Paths may hold bytes that are not UTF-8; their escapes are JSON's own.
    (stage / name).write_text(text, encoding="utf-8", errors="backslashreplace")


def require_publishable(folder: Path, record: str, names: Iterable[str]) -> None:
    """Refuse, before the work, a folder in which these names belong to somebody else."""
    if _pending(folder) is not None:
        with locked(folder, "a result", wait=_PATIENCE):
            _finish_moves(folder)
    _require_ours(folder, record, {*names, *files_of(folder, record)})


def _require_ours(
    folder: Path, record: str, names: Iterable[str], new: Mapping[str, str] | None = None
) -> None:
    """Refuse to replace what is neither as a folder's record says nor as the `new` one does."""
    written = files_of(folder, record)
    ours = [record] if _is_ours(folder / record) else []
    require_unused(folder, {record, *names} - {*ours, *written})
    for name in sorted(written.keys() & set(names)):
        known = {written[name], (new or {}).get(name)}
        if os.path.lexists(folder / name) and _digest(folder / name) not in known:
            raise OutputError(
                f"{folder / name} has been changed since uniproto wrote it. Move it away, or "
                "choose another folder with --out."
            )


def _digest(path: Path) -> str | None:
    """The digest of a file of ours; None of what is none, such as a link."""
    return None if path.is_symlink() or not path.is_file() else sha256_of(path)


def require_unused(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder that has something under names which a command is about to write."""
    for name in sorted(names):
        if os.path.lexists(folder / name):
            raise OutputError(
                f"{folder} holds {name}, which uniproto did not write there. Choose another folder "
                "with --out, or move that file away."
            )


def files_of(folder: Path, record: str) -> dict[str, str]:
    """The files that a record names, with their digests; none where there is no record of ours."""
    found = _read_json(folder / record)
    files = found.get("files", {})
    if not isinstance(files, dict):
        return {}
    return {name: str(digest) for name, digest in files.items() if _is_plain(name)}


def place_of(folder: Path, record: str, name: str) -> Path:
    """Where a file of the set that counts lies: in its place, or where a kill has left it."""
    moves = _pending(folder)
    if moves is None or moves.record != record or not (moves.stage / name).is_file():
        return folder / name
    is_listed = name in (record, *files_of(moves.stage, record))
    return moves.stage / name if is_listed else folder / name


def read_published(folder: Path, record: str, name: str, digest: str | None = None) -> bytes:
    """The content of a file of the set, which must have this digest."""
    try:
        content = place_of(folder, record, name).read_bytes()
    except FileNotFoundError:  # it may have been moved to its place meanwhile
        content = (folder / name).read_bytes()
    if digest is not None and hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{name} is not the file that {record} names")
    return content


def write_page(path: Path, page: str) -> None:
    """Write a page of ours; a file that is none of ours is never replaced."""
    if path.is_dir():
        raise OutputError(f"{path} is a folder. Name a file in it, such as {path / 'page.html'}.")
    if os.path.lexists(path) and not is_our_page(path):
        raise OutputError(
            f"{path} is a file that uniproto did not write. Choose another name, or move it away."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_partials(path.parent)
        with atomic_write(path, note_completed) as file:
            file.write(page.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise unwritable(path, error, "page") from error


def is_our_page(path: Path) -> bool:
    """Whether a file is a page that uniproto has written."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return PAGE_MARK.encode() in file.read(4096)


def refuse_inputs_inside(output: Path, inputs: Iterable[str]) -> None:
    """Refuse an output that is, or contains, something the command reads.

    Inputs are paths or patterns; what is there by neither, such as a name on a hub, is ignored.
    """
    place = output.resolve()
    found = [path for text in inputs for path in (glob.glob(text) or [text]) if exists(path)]
    for path in found:
        read = Path(path).resolve()
        if place == read or place in read.parents:
            raise OutputError(
                f"{output} is or contains {path}, an input. Choose another place with --out."
            )


class _Moves(NamedTuple):
    """A new set that counts: where its files lie, its record, and pages about the old one."""

    stage: Path
    record: str
    pages: tuple[str, ...]


def _commit(folder: Path, stage: Path, record: str, pages: Iterable[str]) -> None:
    """Make the new set the one that counts."""
    new = files_of(stage, record)
    staged = [file.name for file in stage.iterdir()]
    _require_ours(folder, record, {*staged, *(files_of(folder, record).keys() - new.keys())})
    for name in staged:
        sync(stage / name)
    sync(stage)
    with atomic_write(folder / PRIVATE / _PENDING) as file:
        note = {"stage": stage.name, "record": record, "pages": list(pages)}
        file.write(json.dumps(note).encode())


def _finish_moves(folder: Path) -> None:
    """Bring a set that counts to its place; remove what killed runs have left.

    The record comes last, so that until then the old one says what may be replaced and removed.
    """
    private = folder / PRIVATE
    moves = _pending(folder)
    if moves is not None:
        if _is_ours(moves.stage / moves.record):  # else everything has been moved
            _move(folder, moves)
        (private / _PENDING).unlink()
        sync(private)
    for leftover in private.iterdir():
        if _STAGE.fullmatch(leftover.name) and leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)
    for place in (folder, private):
        remove_partials(place)


def _move(folder: Path, moves: _Moves) -> None:
    stage, record, pages = moves
    new, old = files_of(stage, record), files_of(folder, record)
    staged = [name for name in new if os.path.lexists(stage / name)]
    if any(_digest(stage / name) != new[name] for name in staged):
        raise _damaged_moves(folder)
    gone = old.keys() - new.keys()
    _require_ours(folder, record, {*staged, *gone}, new)
    for name in (*gone, *(page for page in pages if is_our_page(folder / page))):
        (folder / name).unlink(missing_ok=True)
    for name in (*staged, record):
        (stage / name).replace(folder / name)
    sync(folder)


def _pending(folder: Path) -> _Moves | None:
    """The moves that a folder waits for, if any; only names inside it are followed."""
    note = folder / PRIVATE / _PENDING
    if note.is_symlink() or not note.is_file():  # a pipe or a device would never end
        return None
    found = _read_json(note)
    stage, record, pages = (found.get(name) for name in ("stage", "record", "pages"))
    plain_names = isinstance(pages, list) and all(_is_plain(name) for name in (record, *pages))
    if not (plain_names and isinstance(stage, str) and _STAGE.fullmatch(stage)):
        if not note.exists():  # finished meanwhile
            return None
        raise _damaged_moves(folder)
    place = note.parent / stage
    if place.is_symlink():
        raise _damaged_moves(folder)
    return _Moves(place, str(record), tuple(pages or ()))


def _damaged_moves(folder: Path) -> InputFileError:
    return InputFileError(
        f"{folder / PRIVATE / _PENDING}: the file must say where the files of a result lie. It is "
        f"damaged. Remove the folder {PRIVATE} in {folder}, and run the command again."
    )


def _is_plain(name: Any) -> bool:
    return isinstance(name, str) and bool(_PLAIN_NAME.fullmatch(name)) and name not in (".", "..")


def _is_ours(record: Path) -> bool:
    return isinstance(_read_json(record).get("uniproto"), str)


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; nothing where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}

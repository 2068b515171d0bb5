"""Sets of files that replace one another all at once, beside whatever else a folder holds.

A set is described by its *record*: a JSON file that names the version of uniproto and, under
`files`, every other file of the set with its digest. Only files that the record of the folder names
are ever replaced or removed; anything else there belongs to somebody else.

New files are first completed in our hidden folder. Then a list of what is to be moved is written:
from that moment on the new set is the one that counts, and whoever opens the folder next finishes
the moves of a run that was killed. Before that moment the old set has not been touched.
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
from os.path import exists
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, OutputError
from uniproto.runs.atomic import atomic_write, sync, unwritable
from uniproto.runs.lock import PRIVATE, locked, private_folder
from uniproto.runs.records import plain, sha256_of
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
    try:
        with locked(folder, "a result", wait=_PATIENCE):
            _finish_moves(folder)
            stage = private_folder(folder) / f"stage-{uuid.uuid4().hex}"
            stage.mkdir()
            try:
                yield stage
                _commit(folder, stage, record, pages)
            except BaseException:
                if not (folder / PRIVATE / _PENDING).exists():  # else the new set counts already
                    shutil.rmtree(stage, ignore_errors=True)
                raise
            _finish_moves(folder)
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        raise unwritable(folder, error) from error


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
    ours = {record, *files_of(folder, record)} if _is_ours(folder / record) else set()
    require_unused(folder, {record, *names} - ours)


def require_unused(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder that has something under names which a command is about to write."""
    for name in sorted(names):
        if os.path.lexists(folder / name):
            raise OutputError(
                f"{folder}: the output must be a folder without files of other programs under the "
                f"names this command writes. It holds {name}, which uniproto did not write there. "
                "Choose another folder with --out, or move that file away."
            )


def files_of(folder: Path, record: str) -> dict[str, str]:
    """The files that a record names, with their digests; none where there is no record of ours."""
    found = _read_json(folder / record)
    files = found.get("files", {})
    if not isinstance(files, dict):
        return {}
    return {name: str(digest) for name, digest in files.items() if _PLAIN_NAME.fullmatch(name)}


def settle(folder: Path) -> None:
    """Before reading: finish the moves of a run that was killed, and wait for one that moves."""
    if _is_pending(folder):
        with locked(folder, "a result", wait=_PATIENCE):
            _finish_moves(folder)


def read_published(folder: Path, record: str, name: str, digest: str) -> bytes:
    """The content of a file of the set, which must be the one that the record names."""
    content = (folder / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{name} is not the file that {record} names")
    return content


def write_page(path: Path, page: str) -> None:
    """Write a page of ours; a file that is none of ours is never replaced."""
    if os.path.lexists(path) and not is_our_page(path):
        raise OutputError(
            f"{path}: the page must not replace a file that uniproto did not write. There is one. "
            "Choose another name with --out, or move that file away."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
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
                f"{output}: the output must not be, or contain, an input. It is or contains "
                f"{path}. Choose another place with --out."
            )


def _commit(folder: Path, stage: Path, record: str, pages: Iterable[str]) -> None:
    """Make the new set the one that counts."""
    new = files_of(stage, record)
    staged = [file.name for file in stage.iterdir()]
    require_publishable(folder, record, staged)
    gone = [name for name in files_of(folder, record) if name not in new]
    gone += [name for name in pages if is_our_page(folder / name)]
    for name in staged:
        sync(stage / name)
    sync(stage)
    with atomic_write(folder / PRIVATE / _PENDING) as file:
        file.write(json.dumps({"stage": stage.name, "remove": gone}).encode())


def _finish_moves(folder: Path) -> None:
    """Bring a set that counts to its place; remove stages that never came to count."""
    private = folder / PRIVATE
    pending = private / _PENDING
    if _is_pending(folder):
        stage, gone = _pending_moves(folder, pending)
        for name in gone:
            (folder / name).unlink(missing_ok=True)
        for file in sorted(stage.iterdir()) if stage.is_dir() else []:
            file.replace(folder / file.name)
        sync(folder)
        pending.unlink()
        sync(private)
    for leftover in private.iterdir():
        if _STAGE.fullmatch(leftover.name) and not leftover.is_symlink():
            shutil.rmtree(leftover)


def _is_pending(folder: Path) -> bool:
    """Whether moves are listed, in a file: a pipe or a device would never end."""
    pending = folder / PRIVATE / _PENDING
    return pending.is_file() and not pending.is_symlink()


def _pending_moves(folder: Path, pending: Path) -> tuple[Path, list[str]]:
    """What is to be moved and removed; only names inside the folder can be."""
    moves = _read_json(pending)
    stage, gone = moves.get("stage"), moves.get("remove")
    names_are_plain = isinstance(gone, list) and all(
        isinstance(name, str) and _PLAIN_NAME.fullmatch(name) and name not in (".", "..")
        for name in gone
    )
    if not (isinstance(stage, str) and _STAGE.fullmatch(stage) and names_are_plain):
        raise InputFileError(
            f"{pending}: the file must list the moves of a run that was killed. It is damaged. "
            f"Remove the folder {PRIVATE} in {folder}, and run the command again."
        )
    place = pending.parent / stage
    if place.is_symlink():
        raise InputFileError(f"{place}: it must be a folder. Got a link instead. Remove it.")
    return place, list(gone or [])


def _is_ours(record: Path) -> bool:
    return isinstance(_read_json(record).get("uniproto"), str)


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; nothing where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}

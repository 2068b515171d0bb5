"""A command that is refused leaves nothing behind: what it has made is taken away again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def missing_folders(folder: Path) -> list[Path]:
    """The folders that would have to be made for this one to be there, the innermost first.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> [path.name for path in missing_folders(place / "run" / "tokens")]
    ['tokens', 'run']
    """
    return [path for path in (folder, *folder.parents) if not path.exists()]


def take_away(files: Iterable[Path], folders: Iterable[Path]) -> None:
    """Remove new files, then new folders, unless somebody else has put something into those.

    The refusal is the news: what cannot be removed stays.
    """
    with suppress(OSError):
        for file in files:
            file.unlink(missing_ok=True)
        for folder in folders:
            folder.rmdir()

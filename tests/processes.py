"""The processes of this machine, as Linux tells of them in /proc."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path


def processes() -> Iterator[tuple[int, list[str]]]:
    """Every process and the fields of its /proc stat file, from the state on."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield int(file.parent.name), file.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue


def running(pids: Iterable[int]) -> set[int]:
    """Those that have not ended, asked for or not."""
    wanted = set(pids)
    return {pid for pid, fields in processes() if pid in wanted and fields[0] != "Z"}


def descendants(root: int) -> set[int]:
    """Every process below one."""
    parents = {pid: int(fields[1]) for pid, fields in processes() if fields[0] != "Z"}
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def command_line(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""

"""The job that the parent hands over to the launcher, and the launcher itself.

These modules are started by a bare `python -I -S` for every program, so they import little (no
`typing`, no `dataclasses`: each would cost milliseconds a program) and nothing of this package.
"""

from __future__ import annotations

import marshal


class Job:
    """One program and its sandbox, in types that `marshal` carries."""

    method: str  # "root", "user", or "trust": no namespaces, no seccomp
    code: bytes
    command: list[str]  # what to execute: the interpreter and its arguments
    program: str  # where the interpreter finds the code
    scratch: str  # the one folder the program may write to, and starts in
    scratch_bytes: int
    scratch_files: int
    links: list[tuple[str, str]]  # (path, target): symbolic links of the new root
    binds: list[str]  # files and folders shown read-only, at their own paths
    masks: list[str]  # folders under a bind that are shown empty
    packages: list[str]  # what is shown as binds are, perhaps on top of a mask
    rlimits: list[tuple[int, int]]  # (resource, value), soft and hard alike
    cpu: int | None  # the one processor it may use
    parent: int  # whose death ends everything

    def __init__(self, **parts: object) -> None:
        vars(self).update(parts)

    def packed(self) -> bytes:
        """As bytes. `marshal`, because both ends are the same Python and `json` is slow to load."""
        return marshal.dumps(vars(self))


def unpacked(data: bytes) -> Job:
    """The job that `packed` packed."""
    return Job(**marshal.loads(data))

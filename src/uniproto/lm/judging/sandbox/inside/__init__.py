"""The job that the parent hands over to the launcher, and the launcher itself.

These modules are started by a bare `python -I -S` for every program, so they import little (no
`typing`, no `dataclasses`: each would cost milliseconds a program) and nothing of this package.
"""

from __future__ import annotations

import marshal


class Job:
    """One program and its sandbox, in types that `marshal` carries."""

    def __init__(
        self,
        method: str,
        code: bytes,
        command: list[str],
        program: str,
        scratch: str,
        scratch_bytes: int,
        scratch_files: int,
        links: list[tuple[str, str]],
        binds: list[str],
        masks: list[str],
        rlimits: list[tuple[int, int]],
        cpu: int | None,
        parent: int,
    ) -> None:
        self.method = method  # "root", "user", or "trust": no namespaces, no seccomp
        self.code = code
        self.command = command  # what to execute: the interpreter and its arguments
        self.program = program  # where the interpreter finds the code
        self.scratch = scratch  # the one folder the program may write to, and starts in
        self.scratch_bytes = scratch_bytes
        self.scratch_files = scratch_files
        self.links = links  # (path, target): symbolic links of the new root
        self.binds = binds  # files and folders shown read-only, at their own paths
        self.masks = masks  # folders under a bind that are shown empty
        self.rlimits = rlimits  # (resource, value), soft and hard alike
        self.cpu = cpu  # the one processor it may use
        self.parent = parent  # whose death ends everything

    def packed(self) -> bytes:
        """As bytes. `marshal`, because both ends are the same Python and `json` is slow to load."""
        return marshal.dumps(vars(self))


def unpacked(data: bytes) -> Job:
    """The job that `packed` packed."""
    return Job(**marshal.loads(data))

"""A file system that shows Python and an empty folder, and nothing else."""

from __future__ import annotations

import os

from . import Job
from .kernel import (
    MS_BIND,
    MS_NOATIME,
    MS_NODEV,
    MS_NODIRATIME,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_RELATIME,
    MS_REMOUNT,
    mount,
    pivot_root,
    unmount,
)

_FLAGS = {
    "ro": MS_RDONLY,
    "nosuid": MS_NOSUID,
    "nodev": MS_NODEV,
    "noexec": MS_NOEXEC,
    "noatime": MS_NOATIME,
    "nodiratime": MS_NODIRATIME,
    "relatime": MS_RELATIME,
}
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_OLD = "/old"


def build_root(job: Job, owner: int, group: int) -> None:
    """Replace the root of this (private) mount namespace.

    No /proc, no /sys, no home, no shared /tmp: what is not mounted cannot be read.
    """
    os.umask(0o022)
    mount("", "/", "", MS_REC | MS_PRIVATE)  # nothing below is ever seen outside
    mount("root", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    os.mkdir(f"/tmp{_OLD}", 0o700)
    pivot_root("/tmp", f"/tmp{_OLD}")
    os.chdir("/")
    for path, target in job.links:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    for path in (*job.binds, *_DEVICES):
        if not path_is_masked(path, job.masks):
            _show(path)
    for path in job.masks:
        mount("mask", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755")
    for path in job.binds:
        if path_is_masked(path, job.masks):
            _show(path)
    with open(job.program, "xb") as file:
        file.write(job.code)
    os.makedirs(job.scratch, exist_ok=True)
    size = f"size={job.scratch_bytes},nr_inodes={job.scratch_files}"
    options = f"mode=700,uid={owner},gid={group},{size}"
    mount("scratch", job.scratch, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
    seen = _mounts()
    unmount(_OLD)
    os.rmdir(_OLD)
    for path, flags in seen:
        if path != job.scratch:
            keep = 0 if path in _DEVICES else MS_NODEV
            mount("", path, "", flags | keep | MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID)


def path_is_masked(path: str, masks: list[str]) -> bool:
    """Whether it lies below a mask, so that it must be shown on top of it.

    >>> path_is_masked("/usr/lib/site-packages/numpy", ["/usr/lib/site-packages"])
    True
    """
    return any(path.startswith(f"{mask}/") for mask in masks)


def _show(path: str) -> None:
    """The file or folder of the old root, at the same place in the new one."""
    source = _OLD + path
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "xb").close()
    mount(source, path, "", MS_BIND | MS_REC)


def _mounts() -> list[tuple[str, int]]:
    """Every mount of the new root with its flags: a user namespace may add to them, not remove."""
    found = []
    with open(f"{_OLD}/proc/self/mountinfo", "rb") as file:
        for line in file:
            _, _, _, _, escaped, options, *_ = line.split()
            # the kernel writes blanks and the like as \040, the one escape that Python shares
            path = os.fsdecode(escaped.decode("unicode_escape").encode("latin-1"))
            if path != _OLD and not path.startswith(f"{_OLD}/"):
                flags = [_FLAGS.get(option, 0) for option in options.decode().split(",")]
                found.append((path, sum(flags)))
    return found

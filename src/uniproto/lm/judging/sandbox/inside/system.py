"""What Python's `os` lacks: mounts, namespaces, capabilities, filters; and the root made of mounts.

The root shows Python and an empty folder, and nothing else.
"""

from __future__ import annotations

import ctypes
import os

from . import Job

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND = 1 << 5, 1 << 10, 1 << 11, 1 << 12
MS_REC, MS_PRIVATE, MS_RELATIME = 1 << 14, 1 << 18, 1 << 21
_MNT_DETACH = 2

CLONE_NEWUSER = 1 << 28
# mounts, cgroups, host name, IPC, processes, network
NAMESPACES = 1 << 17 | 1 << 25 | 1 << 26 | 1 << 27 | 1 << 29 | 1 << 30

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 23, 24, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _done(result: int, what: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """mount(2); with MS_BIND, `source` is shown at `target`."""
    texts = (os.fsencode(source), os.fsencode(target), kind.encode())
    result = _libc.mount(*texts, ctypes.c_ulong(flags), options.encode())
    _done(result, f"mount {kind or source or 'flags'} on {target}")


def unmount(target: str) -> None:
    """Take away `target` and everything mounted below it."""
    _done(_libc.umount2(os.fsencode(target), _MNT_DETACH), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root and move the former root to `old`."""
    _done(_libc.pivot_root(os.fsencode(new), os.fsencode(old)), "pivot_root")


def unshare(flags: int) -> None:
    """unshare(2): leave the namespaces that `flags` name for new ones."""
    _done(_libc.unshare(flags), "unshare")


def set_host_name(name: str) -> None:
    """sethostname(2), for this UTS namespace."""
    _done(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def _prctl(option: int, first: int = 0, second: int = 0) -> int:
    values = [ctypes.c_ulong(value) for value in (first, second, 0, 0)]
    return _done(_libc.prctl(option, *values), f"prctl {option}")


def die_with_parent(signal: int) -> None:
    """Have the kernel send `signal` when the parent (the thread that started us) ends."""
    _prctl(_PR_SET_PDEATHSIG, signal)


def set_dumpable(allowed: bool) -> None:
    """Whether others of the same user may trace this process; also who owns its /proc files."""
    _prctl(_PR_SET_DUMPABLE, int(allowed))


def forbid_new_privileges() -> None:
    """No program executed from here on gains rights from its file (set-user-ID, capabilities)."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def empty_bounding_set() -> None:
    """No capability can come back by executing a file. Needs CAP_SETPCAP."""
    for capability in range(64):
        try:
            held = _prctl(_PR_CAPBSET_READ, capability)
        except OSError:  # EINVAL: the kernel knows no more of them
            return
        if held:
            _prctl(_PR_CAPBSET_DROP, capability)


def drop_capabilities() -> None:
    """Give up every effective, permitted and inheritable capability."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _done(_libc.capset(header, nothing), "capset")


def filter_system_calls(instructions: bytes) -> None:
    """Install a seccomp filter: 8 bytes an instruction, as `struct sock_filter` lays them out."""

    class Program(ctypes.Structure):
        _fields_ = (("count", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    program = Program(len(instructions) // 8, instructions)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


# --- the root ------------------------------------------------------------------------------------

_FLAGS = {
    "ro": MS_RDONLY, "nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC,
    "noatime": MS_NOATIME, "nodiratime": MS_NODIRATIME, "relatime": MS_RELATIME,
}  # fmt: skip
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
        _show(path)
    for path in job.masks:
        mount("mask", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755")
    for path in job.packages:
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

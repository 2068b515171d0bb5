"""The system calls that a program may make: a second line of defence behind the namespaces.

The list says what is allowed: what Python, NumPy, SciPy, SymPy and pandas use on one process's own
files, memory and threads. All else is refused, so that nothing a kernel offers besides (memory that
no limit counts, locks and watches on files that others use, the load of the machine) is a way out.
"""

from __future__ import annotations

import struct
from errno import ENOSYS, EPERM

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (number on x86_64, number on aarch64); None where the architecture has no such call
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # files and folders: the root shows few, and only its own folder can be written
    "read": (0, 63), "write": (1, 64), "open": (2, None), "openat": (257, 56), "close": (3, 57),
    "close_range": (436, 436), "lseek": (8, 62), "pread64": (17, 67), "pwrite64": (18, 68),
    "readv": (19, 65), "writev": (20, 66), "preadv": (295, 69), "pwritev": (296, 70),
    "preadv2": (327, 286), "pwritev2": (328, 287), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "statfs": (137, 43),
    "fstatfs": (138, 44), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, None), "readlinkat": (267, 78), "getcwd": (79, 17), "chdir": (80, 49),
    "fchdir": (81, 50), "getdents": (78, None), "getdents64": (217, 61), "creat": (85, None),
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None),
    "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "link": (86, None), "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "umask": (95, 166),
    "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "fsync": (74, 82),
    "fdatasync": (75, 83), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "getxattr": (191, 8), "lgetxattr": (192, 9), "fgetxattr": (193, 10),
    "listxattr": (194, 11), "llistxattr": (195, 12), "flistxattr": (196, 13), "sendfile": (40, 71),
    "copy_file_range": (326, 285), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24),
    # memory, all of it address space
    "brk": (12, 214), "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226),
    "mremap": (25, 216), "madvise": (28, 233), "msync": (26, 227),
    # threads, signals and the end of this process
    "futex": (202, 98), "set_robust_list": (273, 99), "get_robust_list": (274, 100),
    "set_tid_address": (218, 96), "rseq": (334, 293), "membarrier": (324, 283),
    "gettid": (186, 178), "getpid": (39, 172), "getppid": (110, 173), "getpgid": (121, 155),
    "getpgrp": (111, None), "setpgid": (109, 154), "getsid": (124, 156), "setsid": (112, 157),
    "exit": (60, 93), "exit_group": (231, 94), "wait4": (61, 260), "waitid": (247, 95),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "execve": (59, 221),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136), "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "sigaltstack": (131, 132),
    "pause": (34, None), "alarm": (37, None), "getitimer": (36, 102), "setitimer": (38, 103),
    "restart_syscall": (219, 128), "arch_prctl": (158, None), "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123), "sched_getscheduler": (145, 120), "sched_getparam": (143, 121),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    # time
    "time": (201, None), "gettimeofday": (96, 169), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "nanosleep": (35, 101), "clock_nanosleep": (230, 115),
    "times": (100, 153),
    # waiting for descriptors
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441),
    "eventfd": (284, None), "eventfd2": (290, 19), "pipe": (22, None), "pipe2": (293, 59),
    # a socket pair, which asyncio needs: nothing else can be opened
    "recvfrom": (45, 207), "getsockopt": (55, 209), "getsockname": (51, 204),
    "getpeername": (52, 205), "shutdown": (48, 210),
    # what it is and what it may have
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getresuid": (118, 148), "getresgid": (120, 150), "getgroups": (115, 158), "uname": (63, 160),
    "getrandom": (318, 278), "getrusage": (98, 165), "getrlimit": (97, 163),
    "setrlimit": (160, 164), "prlimit64": (302, 261), "getpriority": (140, 141),
    "getcpu": (309, 168),
}  # fmt: skip
# Allowed with some arguments only; `_checks` says which.
CHECKED: dict[str, tuple[int, int]] = {
    "clone": (56, 220), "fcntl": (72, 25), "ioctl": (16, 29), "prctl": (157, 167),
    "sendto": (44, 206), "socketpair": (53, 199),
}  # fmt: skip
CLONE3 = 435  # its flags lie behind a pointer, where no filter sees them: glibc then takes clone
NEWEST = 450  # of Linux 5.17

_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16  # in struct seccomp_data
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_X32_BIT = 0x40000000  # system calls of the 32-bit-pointer kind, with numbers of their own
_AF_UNIX = 1
_CLONE_THREAD = 0x00010000
_CLONE_NEW = 0x7E020080  # every CLONE_NEW… flag
# Duplicates and flags. No locks, leases or notices on files that others use, no larger pipes.
_FCNTL = {"F_DUPFD": 0, "F_GETFD": 1, "F_SETFD": 2, "F_GETFL": 3, "F_SETFL": 4,
          "F_DUPFD_CLOEXEC": 1030, "F_GETPIPE_SZ": 1032}  # fmt: skip
# Whether it is a terminal and how large, bytes to read, blocking, close-on-exec.
_IOCTL = {"TCGETS": 0x5401, "TCGETS2": 0x802C542A, "TIOCGWINSZ": 0x5413, "FIONREAD": 0x541B,
          "FIONBIO": 0x5421, "FIONCLEX": 0x5450, "FIOCLEX": 0x5451}  # fmt: skip
_PRCTL = {"PR_SET_NAME": 15, "PR_GET_NAME": 16}


def filter_for(machine: str) -> bytes:
    """The filter for `machine`, one of ARCHITECTURES, as the kernel wants it.

    >>> len(filter_for("x86_64")) % 8, len(filter_for("aarch64")) % 8
    (0, 0)
    """
    column = list(ARCHITECTURES).index(machine)
    lines = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        *_when(_EQUAL, ARCHITECTURES[machine], otherwise=_KILL),
        (_LOAD, 0, 0, _AT_NUMBER),
    ]
    if machine == "x86_64":
        lines += _when(_ABOVE, _X32_BIT - 1, then=_KILL)
    lines += _when(_ABOVE, NEWEST, then=_REFUSE | ENOSYS)
    lines += _when(_EQUAL, CLONE3, then=_REFUSE | ENOSYS)
    for numbers in ALLOWED.values():
        number = numbers[column]
        if number is not None:
            lines += _when(_EQUAL, number, then=_ALLOW)
    for name, checks in _checks().items():
        lines += [(_EQUAL, 0, len(checks), CHECKED[name][column]), *checks]
    lines.append((_RETURN, 0, 0, _REFUSE | EPERM))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _checks() -> dict[str, list[tuple[int, int, int, int]]]:
    """What decides over the calls of CHECKED, by their arguments; each ends with a verdict."""
    allow, refuse = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE | EPERM)
    return {
        "clone": [  # threads, no processes, no namespaces
            _argument(0),
            *_when(_ANY_BIT, _CLONE_THREAD, otherwise=_REFUSE | EPERM),
            *_when(_ANY_BIT, _CLONE_NEW, then=_REFUSE | EPERM),
            allow,
        ],
        "fcntl": [_argument(1), *_any_of(_FCNTL), refuse],
        "ioctl": [_argument(1), *_any_of(_IOCTL), refuse],
        "prctl": [_argument(0), *_any_of(_PRCTL), refuse],
        "sendto": [  # to the other end only: no address
            _argument(4),
            *_when(_EQUAL, 0, otherwise=_REFUSE | EPERM),
            _argument(4, high=True),
            *_when(_EQUAL, 0, then=_ALLOW),
            refuse,
        ],
        # Of the ordinary kind, which asyncio needs. Without setsockopt and sendmsg its buffers
        # stay small and carry no descriptors: both would be memory that no limit counts.
        "socketpair": [_argument(0), *_when(_EQUAL, _AF_UNIX, then=_ALLOW), refuse],
    }


def _argument(place: int, *, high: bool = False) -> tuple[int, int, int, int]:
    """Load half of an argument: 64 bits each, the low half first on both architectures."""
    return (_LOAD, 0, 0, _AT_ARGUMENTS + 8 * place + 4 * high)


def _any_of(values: dict[str, int]) -> list[tuple[int, int, int, int]]:
    return [line for value in values.values() for line in _when(_EQUAL, value, then=_ALLOW)]


def _when(
    test: int, value: int, then: int | None = None, otherwise: int | None = None
) -> list[tuple[int, int, int, int]]:
    """Return one verdict if the test holds (or fails), else go on with the next line."""
    if otherwise is None:
        return [(test, 0, 1, value), (_RETURN, 0, 0, then or 0)]
    return [(test, 1, 0, value), (_RETURN, 0, 0, otherwise)]

"""The second wall: which system calls are refused, should a namespace ever leak.

The list says what is refused, not what is allowed, so that it breaks no library; everything newer
than Linux 5.17 is refused too, so that a new kernel brings no new way out.
"""

from __future__ import annotations

import struct
from errno import ENOSYS, EPERM

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (number on x86_64, number on aarch64); None where the architecture has no such call
DENIED: dict[str, tuple[int | None, int | None]] = {
    # other processes: one program is one process, so its address space bounds all its memory
    "fork": (57, None),
    "vfork": (58, None),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "kcmp": (312, 272),
    "execveat": (322, 281),
    # more than its share of the machine
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # memory that no address-space limit counts
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    # the network, and sockets on this machine
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    # the kernel itself, and parts of it that are often attacked and never needed here
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),
    "splice": (275, 76),
    "vmsplice": (278, 75),
    "tee": (276, 77),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "personality": (135, 92),
    "seccomp": (317, 277),
    "remap_file_pages": (216, 234),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "_sysctl": (156, None),
}
CLONE = (56, 220)
SOCKETPAIR = (53, 199)  # stays for the ordinary kind, which asyncio needs
CLONE3 = 435  # its flags lie behind a pointer, where no filter sees them: glibc then takes clone
NEWEST = 450  # of Linux 5.17

_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_AT_NUMBER, _AT_ARCHITECTURE, _AT_FIRST_ARGUMENT = 0, 4, 16  # in struct seccomp_data
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_X32_BIT = 0x40000000  # system calls of the 32-bit-pointer kind, with numbers of their own
_AF_UNIX = 1
_CLONE_THREAD = 0x00010000
_CLONE_NEW = 0x7E020080  # every CLONE_NEW… flag


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
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            lines += _when(_EQUAL, number, then=_REFUSE | EPERM)
    pairs = _when(_EQUAL, _AF_UNIX, otherwise=_REFUSE | EPERM)
    threads = [
        *_when(_ANY_BIT, _CLONE_THREAD, otherwise=_REFUSE | EPERM),
        *_when(_ANY_BIT, _CLONE_NEW, then=_REFUSE | EPERM),
    ]
    for number, checks in ((SOCKETPAIR[column], pairs), (CLONE[column], threads)):
        block = [(_LOAD, 0, 0, _AT_FIRST_ARGUMENT), *checks, (_RETURN, 0, 0, _ALLOW)]
        lines += [(_EQUAL, 0, len(block), number), *block]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _when(
    test: int, value: int, then: int | None = None, otherwise: int | None = None
) -> list[tuple[int, int, int, int]]:
    """Return one verdict if the test holds (or fails), else go on with the next line."""
    if otherwise is None:
        return [(test, 0, 1, value), (_RETURN, 0, 0, then or 0)]
    return [(test, 1, 0, value), (_RETURN, 0, 0, otherwise)]

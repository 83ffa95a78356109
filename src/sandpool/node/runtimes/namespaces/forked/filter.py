"""The seccomp filter, as the kernel's own little programs: pure, so that a test can run it without a kernel.

What is not named is allowed: the walls are the namespaces, this takes away what has broken walls before.
"""

from __future__ import annotations

import errno
import struct

from sandpool.node.runtimes.namespaces.forked.syscalls import Architecture

ALLOW = 0x7FFF0000
KILL = 0x80000000
ERROR = 0x00050000

# Offsets in struct seccomp_data; both machines are little-endian.
NUMBER, ARCH, ARGUMENTS = 0, 4, 16

LOAD, JUMP_EQUAL, JUMP_SET, JUMP_GREATER, AND, RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06

X32_BIT = 0x40000000
NEW_NAMESPACES = 0x7E020000  # cgroup, uts, ipc, user, pid, net, mount
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423
# The same as fallocate, by ioctl: XFS_IOC_RESVSP, ALLOCSP, FREESP and ZERO_RANGE, old and new; and FS_IOC_FSSETXATTR, after which every
# small write to a file takes as much as one likes.
ROOM = (0x40305828, 0x4030582A, 0x4030580A, 0x40305824, 0x4030580B, 0x40305825, 0x40305839, 0x401C5820)
CALL_FAMILY, BTRFS = 0xFF00, 0x9400
COPIES = (
    0x40049409,
    0x4020940D,
    0xC0189436,
)  # FICLONE, FICLONERANGE, FIDEDUPERANGE: of that family, and of other file systems
PUNCH_HOLE = 2
CORE = 4  # RLIMIT_CORE
SET_LEASE, SET_DELEGATION = 1024, 1040  # F_SETLEASE, F_SETDELEG
CORE_SCHEDULING = 62  # PR_SCHED_CORE
QUERY_PERSONALITY = 0xFFFFFFFF
MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB = 0x40000, 4, 0o4000
SOL_SOCKET = 1
DISK_CLASS, BEST_EFFORT, IDLE, DISK_LEVEL, USUAL_LEVEL = 0xE000, 0x4000, 0x6000, 7, 4
# SO_ATTACH_FILTER, SO_ATTACH_BPF, and the same two for sockets that share a port.
SOCKET_PROGRAMS = (26, 50, 51, 52)

Instruction = tuple[int, int, int, int]


def _refuse(number: int) -> Instruction:
    return (RETURN, 0, 0, ERROR | number)


_ALLOW: Instruction = (RETURN, 0, 0, ALLOW)
_PRETEND = _refuse(0)  # it says that it is done, and nothing happens


def _argument(index: int) -> Instruction:
    """The low half: the kernel itself looks at no more of these."""
    return (LOAD, 0, 0, ARGUMENTS + 8 * index)


def _clone() -> list[Instruction]:
    return [_argument(0), (JUMP_SET, 0, 1, NEW_NAMESPACES), _refuse(errno.EPERM), _ALLOW]


def _socket() -> list[Instruction]:
    """Addresses of this machine and of the internet; of the kernel's own, only the one that lists addresses."""
    refuse = _refuse(errno.EAFNOSUPPORT)
    return [
        _argument(0),
        (JUMP_EQUAL, 5, 0, AF_UNIX),
        (JUMP_EQUAL, 4, 0, AF_INET),
        (JUMP_EQUAL, 3, 0, AF_INET6),
        (JUMP_EQUAL, 0, 3, AF_NETLINK),
        _argument(2),
        (JUMP_EQUAL, 0, 1, 0),
        _ALLOW,
        refuse,
    ]


def _ioctl() -> list[Instruction]:
    """Nobody types into somebody else's terminal or changes what a terminal's line is; none of the other names of fallocate; and no
    btrfs of one's own: nobody could remove the files of a snapshot that is read-only."""
    typing = (TIOCSTI, TIOCLINUX, TIOCSETD)
    refused = [(call, 0) for call in typing] + [(call, 1) for call in ROOM] + [(call, -1) for call in COPIES]
    family: list[Instruction] = [(AND, 0, 0, CALL_FAMILY), (JUMP_EQUAL, 3, 0, BTRFS)]
    ends = [_ALLOW, _refuse(errno.EPERM), _refuse(errno.EOPNOTSUPP), _refuse(errno.ENOTTY)]
    judged = [
        (JUMP_EQUAL, len(refused) - number - 1 + len(family) + 1 + end, 0, call)
        for number, (call, end) in enumerate(refused)
    ]
    return [_argument(1), *judged, *family, *ends]


def _personality() -> list[Instruction]:
    return [
        _argument(0),
        (JUMP_EQUAL, 2, 0, 0),
        (JUMP_EQUAL, 1, 0, QUERY_PERSONALITY),
        _refuse(errno.EPERM),
        _ALLOW,
    ]


def _high_half(index: int) -> Instruction:
    return (LOAD, 0, 0, ARGUMENTS + 8 * index + 4)


def _setrlimit() -> list[Instruction]:
    """The limit of core files stays at one byte: at any other, also at none, a machine that pipes them to a program starts that program
    for each crash, as root, outside of everything that limits a sandbox. Who sets it wants no core file, and gets none."""
    return [_argument(0), (JUMP_EQUAL, 0, 1, CORE), _PRETEND, _ALLOW]


def _prlimit() -> list[Instruction]:
    """Only one's own limits: pid 1 has the same owner as everybody else. All may be asked for, by giving no new one."""
    return [
        _argument(0),
        (JUMP_EQUAL, 1, 0, 0),
        _refuse(errno.EPERM),
        _argument(1),
        (JUMP_EQUAL, 0, 5, CORE),
        _argument(2),
        (JUMP_EQUAL, 0, 2, 0),
        _high_half(2),
        (JUMP_EQUAL, 1, 0, 0),
        _PRETEND,
        _ALLOW,
    ]


def _fallocate() -> list[Instruction]:
    """It takes any amount of disk in no time, before anybody can measure it. Giving room back is allowed; a C library whose call
    is answered like this writes instead, as on the file systems that know no such call."""
    return [_argument(1), (JUMP_SET, 0, 1, PUNCH_HOLE), _ALLOW, _refuse(errno.EOPNOTSUPP)]


def _fcntl() -> list[Instruction]:
    """No leases: whoever opens, empties or removes a file on which somebody has one is made to wait, up to 45 s, also when that is the
    machine. As on file systems without them."""
    return [
        _argument(1),
        (JUMP_EQUAL, 1, 0, SET_LEASE),
        (JUMP_EQUAL, 0, 1, SET_DELEGATION),
        _refuse(errno.EINVAL),
        _ALLOW,
    ]


def _prctl() -> list[Instruction]:
    """No core for oneself: while a program with a cookie of its own runs, the other thread of its core stands still, and no limit of
    processor time counts that. As in a kernel without."""
    return [_argument(0), (JUMP_EQUAL, 0, 1, CORE_SCHEDULING), _refuse(errno.EINVAL), _ALLOW]


def _huge_pages(index: int, flag: int) -> list[Instruction]:
    """The operator reserved them for something else. As where none are left: programs take ordinary ones."""
    return [_argument(index), (JUMP_SET, 0, 1, flag), _refuse(errno.ENOMEM), _ALLOW]


def _setsockopt() -> list[Instruction]:
    """No programs for sockets: they are compiled into a pool of the whole machine (net.core.bpf_jit_limit), out of which the
    filters of other sandboxes come, too. Who asks is told that there is no such option, and filters by itself."""
    programs = [(JUMP_EQUAL, len(SOCKET_PROGRAMS) - number, 0, option) for number, option in enumerate(SOCKET_PROGRAMS)]
    return [
        _argument(1),
        (JUMP_EQUAL, 1, 0, SOL_SOCKET),
        _ALLOW,
        _argument(2),
        *programs,
        _ALLOW,
        _refuse(errno.ENOPROTOOPT),
    ]


def _ioprio_set() -> list[Instruction]:
    """At the disk nobody goes before others: the usual level, a lower one, or only when nobody else wants it."""
    return [
        _argument(2),
        (AND, 0, 0, DISK_CLASS),
        (JUMP_EQUAL, 5, 0, 0),
        (JUMP_EQUAL, 4, 0, IDLE),
        (JUMP_EQUAL, 0, 4, BEST_EFFORT),
        _argument(2),
        (AND, 0, 0, DISK_LEVEL),
        (JUMP_GREATER, 0, 1, USUAL_LEVEL),
        _ALLOW,
        _refuse(errno.EPERM),
    ]


def instructions(machine: Architecture) -> list[Instruction]:
    # The C library asks for clone3 first and takes ENOSYS for "not here": its flags are in memory, where no filter sees them.
    judged = {
        "mmap": _huge_pages(3, MAP_HUGETLB),  # first, because it is called often
        "memfd_create": _huge_pages(1, MFD_HUGETLB), "shmget": _huge_pages(2, SHM_HUGETLB),
        "clone": _clone(), "clone3": [_refuse(errno.ENOSYS)], "socket": _socket(), "socketpair": _socket(),
        "ioctl": _ioctl(), "fcntl": _fcntl(), "prctl": _prctl(), "personality": _personality(), "prlimit64": _prlimit(),
        "setrlimit": _setrlimit(),
        "fallocate": _fallocate(),
        "setsockopt": _setsockopt(), "ioprio_set": _ioprio_set(),
    }  # fmt: skip
    program: list[Instruction] = [(LOAD, 0, 0, ARCH), (JUMP_EQUAL, 1, 0, machine.audit), (RETURN, 0, 0, KILL)]
    program.append((LOAD, 0, 0, NUMBER))
    if machine.x32:
        program += [(JUMP_GREATER, 0, 1, X32_BIT), (RETURN, 0, 0, KILL)]
    for name, body in judged.items():
        program.append((JUMP_EQUAL, 0, len(body), machine.judged[name]))
        program += body
    for number in machine.forbidden:
        program += [(JUMP_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    for number in machine.absent:
        program += [(JUMP_EQUAL, 0, 1, number), _refuse(errno.ENOSYS)]
    return [*program, _ALLOW]


def assemble(machine: Architecture) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions(machine))

"""The seccomp filter of sandboxes, as a BPF program. Pure, so that a test can run it without a kernel.

Namespaces provide the isolation. The filter removes calls that have been used to break it, and calls and arguments with which a program could
use kernel memory that no control group counts. seccomp_calls.py lists the calls.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

from sandpool.node.runtimes.namespaces.forked.seccomp_calls import ABSENT, FORBIDDEN, JUDGED, KNOWN


@dataclass(frozen=True, slots=True)
class Architecture:
    """System call numbers of one machine architecture."""

    audit: int  # the AUDIT_ARCH constant that seccomp uses
    known: tuple[tuple[int, int], ...]
    forbidden: tuple[int, ...]
    absent: tuple[int, ...]
    judged: dict[str, int]
    x32: bool  # the same entry point also accepts calls of the x32 ABI, marked by a bit


def architecture(machine: str) -> Architecture | None:
    """The architecture of a machine name. None if it is not supported; then no sandbox may be started."""
    column = {"x86_64": 0, "aarch64": 1}.get(machine)
    if column is None:
        return None
    numbers = [pair[column] for pair in FORBIDDEN.values()]
    return Architecture(
        audit=(0xC000003E, 0xC00000B7)[column],
        known=KNOWN[column],
        forbidden=tuple(sorted(number for number in numbers if number is not None)),
        absent=tuple(sorted(pair[column] for pair in ABSENT.values())),
        judged={name: number for name, pair in JUDGED.items() if (number := pair[column]) is not None},
        x32=column == 0,
    )


ALLOW = 0x7FFF0000
KILL = 0x80000000
ERROR = 0x00050000

# Offsets in struct seccomp_data; both architectures are little-endian.
NUMBER, ARCH, ARGUMENTS = 0, 4, 16

LOAD, JUMP_EQUAL, JUMP_SET, JUMP_GREATER, AND, RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06

X32_BIT = 0x40000000
NEW_NAMESPACES = 0x7E020000  # cgroup, uts, ipc, user, pid, net, mount
CLONE_FILES, CLONE_THREAD = 0x400, 0x10000
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423
# The ioctl forms of fallocate: XFS_IOC_RESVSP, ALLOCSP, FREESP and ZERO_RANGE, old and new; and FS_IOC_FSSETXATTR, which can make every
# small write to a file allocate any amount of disk.
FALLOCATE_IOCTLS = (0x40305828, 0x4030582A, 0x4030580A, 0x40305824, 0x4030580B, 0x40305825, 0x40305839, 0x401C5820)
CALL_FAMILY, TERMINAL_FAMILY, SOCKET_FAMILY = 0xFF00, 0x5400, 0x8900  # the first also has FIONREAD and the like
# FICLONE, FICLONERANGE, FIDEDUPERANGE; FS_IOC_GETFLAGS, SETFLAGS, GETVERSION, FIEMAP and FSGETXATTR; XFS_IOC_UNRESVSP, old and new;
# FIGETBSZ; RNDGETENTCNT
FILE_IOCTLS = (
    0x40049409, 0x4020940D, 0xC0189436,
    0x80086601, 0x40086602, 0x80087601, 0xC020660B, 0x801C581F,
    0x40305829, 0x4030582B,
    0x2,
    0x80045200,
)  # fmt: skip
PUNCH_HOLE = 2
CORE = 4  # RLIMIT_CORE
SET_LEASE, SET_DELEGATION = 1024, 1040  # F_SETLEASE, F_SETDELEG
OPEN_FILE_LOCKS = (36, 37, 38)  # F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW
MOST_POLLED = 1024  # FD_SETSIZE of the C library
MOST_XATTR = 480  # bytes: what the kernel keeps of an access control list of that size fits into 512
MERGEABLE = 12  # MADV_MERGEABLE
CORE_SCHEDULING = 62  # PR_SCHED_CORE
QUERY_PERSONALITY = 0xFFFFFFFF
MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB = 0x40000, 4, 0o4000
INTERNET_PROTOCOLS = (0, 1, 6, 17, 58)  # the default of the socket's type, ICMP, TCP, UDP, ICMPv6
DISK_CLASS, BEST_EFFORT, IDLE, DISK_LEVEL, USUAL_LEVEL = 0xE000, 0x4000, 0x6000, 7, 4
# By level. SOL_SOCKET (1): SO_ATTACH_FILTER, SO_ATTACH_BPF, and the same two for reuseport groups; TCP (6): TCP_MD5SIG, TCP_MD5SIG_EXT,
# TCP_AO_ADD_KEY, TCP_AO_INFO, TCP_ULP; IPv6 (41): IPV6_FLOWLABEL_MGR.
SOCKET_OPTIONS = {1: (26, 50, 51, 52), 6: (14, 32, 38, 40, 31), 41: (32,)}

Instruction = tuple[int, int, int, int]


def _refuse(number: int) -> Instruction:
    return (RETURN, 0, 0, ERROR | number)


_ALLOW: Instruction = (RETURN, 0, 0, ALLOW)
_SUCCEED = _refuse(0)  # reports success without doing anything


def _argument(index: int) -> Instruction:
    """Loads the low half of an argument. For these arguments, the kernel itself ignores the high half."""
    return (LOAD, 0, 0, ARGUMENTS + 8 * index)


def _clone() -> list[Instruction]:
    """Refuses new namespaces, and a file table that is shared by processes instead of threads: file locks of a process that has ended would
    stay, and nobody could tell whose they are (lock_memory.py)."""
    return [
        _argument(0),
        (JUMP_SET, 0, 1, NEW_NAMESPACES),
        _refuse(errno.EPERM),
        (AND, 0, 0, CLONE_FILES | CLONE_THREAD),
        (JUMP_EQUAL, 0, 1, CLONE_FILES),
        _refuse(errno.EINVAL),
        _ALLOW,
    ]


def _socket() -> list[Instruction]:
    """Allows unix and internet sockets and, of netlink, only the family that lists addresses. Of the internet protocols, only those that programs
    use: for others, the kernel would load a module for the whole machine, and MPTCP connections remain for a minute after their sandbox has
    ended."""
    protocols: list[Instruction] = [_argument(2)]
    for protocol in INTERNET_PROTOCOLS:
        protocols += [(JUMP_EQUAL, 0, 1, protocol), _ALLOW]
    protocols.append(_refuse(errno.EPROTONOSUPPORT))
    listing = [_argument(2), (JUMP_EQUAL, 0, 1, 0), _ALLOW, _refuse(errno.EAFNOSUPPORT)]
    return [
        _argument(0),
        (JUMP_EQUAL, 0, 1, AF_UNIX),
        _ALLOW,
        (JUMP_EQUAL, 2, 0, AF_INET),
        (JUMP_EQUAL, 1, 0, AF_INET6),
        (JUMP_EQUAL, len(protocols), len(protocols) + len(listing) - 1, AF_NETLINK),
        *protocols,
        *listing,
    ]


def _ioctl() -> list[Instruction]:
    """Allows the calls of terminals and sockets, and a few of files. All others get the error of a file that does not know them: file systems have
    many private calls that create snapshots, keys or buffers which no limit counts. Refuses input into another process's terminal (TIOCSTI),
    changes of line disciplines, and the ioctl forms of fallocate."""
    exact = dict.fromkeys((TIOCSTI, TIOCLINUX, TIOCSETD), _refuse(errno.EPERM))
    exact |= dict.fromkeys(FALLOCATE_IOCTLS, _refuse(errno.EOPNOTSUPP)) | dict.fromkeys(FILE_IOCTLS, _ALLOW)
    found = [_argument(1)]
    for call, verdict in exact.items():
        found += [(JUMP_EQUAL, 0, 1, call), verdict]
    family: list[Instruction] = [
        (AND, 0, 0, CALL_FAMILY),
        (JUMP_EQUAL, 2, 0, TERMINAL_FAMILY),
        (JUMP_EQUAL, 1, 0, SOCKET_FAMILY),
        _refuse(errno.ENOTTY),
        _ALLOW,
    ]
    return [*found, *family]


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
    """Keeps the core file limit at one byte. With any other value, including zero, a machine that pipes core files to a program starts that program
    as root for each crash, outside all limits of the sandbox. Setting the limit reports success and changes nothing."""
    return [_argument(0), (JUMP_EQUAL, 0, 1, CORE), _SUCCEED, _ALLOW]


def _prlimit() -> list[Instruction]:
    """Lets a process change only its own limits, because pid 1 has the same user as all others. Reading limits of others is allowed."""
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
        _SUCCEED,
        _ALLOW,
    ]


def _fallocate() -> list[Instruction]:
    """Refuses fallocate, which can allocate any amount of disk at once, before the pod can be measured. Punching holes is allowed. On this error, the
    C library writes zeros instead, as on file systems without the call."""
    return [_argument(1), (JUMP_SET, 0, 1, PUNCH_HOLE), _ALLOW, _refuse(errno.EOPNOTSUPP)]


def _fcntl() -> list[Instruction]:
    """Refuses leases: a process that opens, truncates or removes a leased file waits for up to 45 s, and that would include our own processes.
    Refuses locks that belong to an open file instead of a process (F_OFD_*): the kernel charges no lock to a control group, and of these it
    does not say who has them. The error is that of kernels and file systems without them."""
    found = [_argument(1)]
    for command in (SET_LEASE, SET_DELEGATION, *OPEN_FILE_LOCKS):
        found += [(JUMP_EQUAL, 0, 1, command), _refuse(errno.EINVAL)]
    return [*found, _ALLOW]


def _prctl() -> list[Instruction]:
    """Refuses core scheduling: while a process with its own cookie runs, the sibling hyperthread is idle, which no CPU limit counts. The error is
    that of a kernel without it."""
    return [_argument(0), (JUMP_EQUAL, 0, 1, CORE_SCHEDULING), _refuse(errno.EINVAL), _ALLOW]


def _polled(index: int) -> list[Instruction]:
    """Limits the number of files that one call waits for. Meanwhile, the kernel keeps 72 bytes for each and charges them to no control group:
    without a bound, 1,024 waiting threads of a pod of 64 MiB could hold 4.8 GiB. The error is that of a limit of open files."""
    return [_argument(index), (JUMP_GREATER, 0, 1, MOST_POLLED + 1), _refuse(errno.EINVAL), _ALLOW]


def _setxattr() -> list[Instruction]:
    """Limits the size of extended attributes. The kernel keeps access control lists of files in memory, up to 64 KiB each, and charges them to no
    control group."""
    return [
        _high_half(3),
        (JUMP_GREATER, 2, 0, 1),
        _argument(3),
        (JUMP_GREATER, 0, 1, MOST_XATTR + 1),
        _refuse(errno.E2BIG),
        _ALLOW,
    ]


def _madvise() -> list[Instruction]:
    """Refuses to have equal pages merged (KSM) where the operator uses that for something else: it takes kernel time that nobody is charged for, and
    whether a page was merged tells about other sandboxes. The error is that of a kernel without it."""
    return [_argument(2), (JUMP_EQUAL, 0, 1, MERGEABLE), _refuse(errno.EINVAL), _ALLOW]


def _huge_pages(index: int, flag: int) -> list[Instruction]:
    """Refuses huge pages, which the operator reserved for something else. The error is that of an empty pool: programs use ordinary pages."""
    return [_argument(index), (JUMP_SET, 0, 1, flag), _refuse(errno.ENOMEM), _ALLOW]


def _setsockopt() -> list[Instruction]:
    """Refuses options that use a pool of the whole machine, or memory that the kernel charges to no control group. The error is that of a kernel
    without the option.

    Socket filters are compiled into one pool (net.core.bpf_jit_limit), which the seccomp filters of other sandboxes need, too. Keys that
    sign TCP segments take 128 KiB or more per socket, TLS in the kernel several KiB. There are 4,096 IPv6 flow labels, and the last quarter
    is for root only."""
    found = [_argument(1)]
    for level, options in SOCKET_OPTIONS.items():
        judged = [_argument(2)]
        for option in options:
            judged += [(JUMP_EQUAL, 0, 1, option), _refuse(errno.ENOPROTOOPT)]
        found += [(JUMP_EQUAL, 0, len(judged) + 1, level), *judged, _ALLOW]
    return [*found, _ALLOW]


def _ioprio_set() -> list[Instruction]:
    """Allows the default disk priority and lower ones only."""
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
    # clone3 gets ENOSYS, because its flags are in memory, which a filter cannot read. The C library then falls back to clone.
    judged = {
        "mmap": _huge_pages(3, MAP_HUGETLB),  # first, because it is called often
        "memfd_create": _huge_pages(1, MFD_HUGETLB), "shmget": _huge_pages(2, SHM_HUGETLB),
        "clone": _clone(), "clone3": [_refuse(errno.ENOSYS)], "socket": _socket(), "socketpair": _socket(),
        "ioctl": _ioctl(), "fcntl": _fcntl(), "prctl": _prctl(), "personality": _personality(), "prlimit64": _prlimit(),
        "setrlimit": _setrlimit(),
        "fallocate": _fallocate(),
        "setsockopt": _setsockopt(), "ioprio_set": _ioprio_set(),
        "poll": _polled(1), "ppoll": _polled(1), "select": _polled(0), "pselect6": _polled(0),
        "setxattr": _setxattr(), "lsetxattr": _setxattr(), "fsetxattr": _setxattr(), "madvise": _madvise(),
    }  # fmt: skip
    program: list[Instruction] = [(LOAD, 0, 0, ARCH), (JUMP_EQUAL, 1, 0, machine.audit), (RETURN, 0, 0, KILL)]
    program.append((LOAD, 0, 0, NUMBER))
    if machine.x32:
        program += [(JUMP_GREATER, 0, 1, X32_BIT), (RETURN, 0, 0, KILL)]
    for name, body in judged.items():
        if name in machine.judged:
            program += [(JUMP_EQUAL, 0, len(body), machine.judged[name]), *body]
    for number in machine.forbidden:
        program += [(JUMP_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    for number in machine.absent:
        program += [(JUMP_EQUAL, 0, 1, number), _refuse(errno.ENOSYS)]
    for first, last in machine.known:
        program += [(JUMP_GREATER, 0, 2, first), (JUMP_GREATER, 1, 0, last + 1), _ALLOW]
    return [*program, _refuse(errno.ENOSYS)]


def assemble(machine: Architecture) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions(machine))

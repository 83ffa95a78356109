"""The seccomp filter of sandboxes: which system calls are refused, and the BPF program that does it. Pure, so that a test can run it without a
kernel.

Calls that are not listed are allowed. Namespaces provide the isolation; the filter removes calls that have been used to break it.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

# Calls that ordinary programs do not need and that help to escape: numbers on (x86_64, arm64), None if there is no such call.
FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    # mounts, old and new
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "statmount": (457, 457), "listmount": (458, 458),
    # other namespaces
    "unshare": (272, 97), "setns": (308, 268), "listns": (470, 470),
    # other processes' memory and files
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "move_pages": (279, 239), "migrate_pages": (256, 238),
    # code in the kernel, and ways around its checks
    "bpf": (321, 280), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "lookup_dcookie": (212, 18),
    # keys belong to no namespace
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # the machine
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "create_module": (174, None), "query_module": (178, None),
    "get_kernel_syms": (177, None), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443), "nfsservctl": (180, 42), "uselib": (134, None),
    "_sysctl": (156, None), "ustat": (136, None), "sysfs": (139, None), "syslog": (103, 116), "vhangup": (153, 58),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "vserver": (236, None),
    "sethostname": (170, 161), "setdomainname": (171, 162),
    "lsm_set_self_attr": (460, 460),
}  # fmt: skip

# Calls that fail with ENOSYS, as in a kernel built without them, so that programs fall back instead of failing.
# Asynchronous I/O uses one pool of the whole machine (fs.aio-max-nr). A Landlock rule keeps a deleted file on disk that no process has
# open, so that measuring a sandbox's files would not find it. Secret memory breaks up the huge pages of the whole machine. file_setattr
# can make every small write allocate any amount of disk, as FS_IOC_FSSETXATTR can (see `_ioctl`).
ABSENT: dict[str, tuple[int, int]] = {
    "io_setup": (206, 0), "io_destroy": (207, 1), "io_submit": (209, 2), "io_cancel": (210, 3),
    "io_getevents": (208, 4), "io_pgetevents": (333, 292),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446),
    "memfd_secret": (447, 447), "file_setattr": (469, 469),
}  # fmt: skip

# Calls that are allowed only with some arguments; see `instructions`.
JUDGED = {
    "mmap": (9, 222), "memfd_create": (319, 279), "shmget": (29, 194),
    "clone": (56, 220), "clone3": (435, 435), "socket": (41, 198), "socketpair": (53, 199), "ioctl": (16, 29),
    "personality": (135, 92), "prlimit64": (302, 261), "setrlimit": (160, 164), "fallocate": (285, 47),
    "setsockopt": (54, 208), "ioprio_set": (251, 30), "fcntl": (72, 25),
    "prctl": (157, 167),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Architecture:
    """System call numbers of one machine architecture."""

    audit: int  # the AUDIT_ARCH constant that seccomp uses
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
        forbidden=tuple(sorted(number for number in numbers if number is not None)),
        absent=tuple(sorted(pair[column] for pair in ABSENT.values())),
        judged={name: pair[column] for name, pair in JUDGED.items()},
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
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423
# The ioctl forms of fallocate: XFS_IOC_RESVSP, ALLOCSP, FREESP and ZERO_RANGE, old and new; and FS_IOC_FSSETXATTR, which can make every
# small write to a file allocate any amount of disk.
FALLOCATE_IOCTLS = (0x40305828, 0x4030582A, 0x4030580A, 0x40305824, 0x4030580B, 0x40305825, 0x40305839, 0x401C5820)
CALL_FAMILY, BTRFS = 0xFF00, 0x9400
COPIES = (
    0x40049409,
    0x4020940D,
    0xC0189436,
)  # FICLONE, FICLONERANGE, FIDEDUPERANGE: in the range of btrfs ioctls, but for other file systems, too
PUNCH_HOLE = 2
CORE = 4  # RLIMIT_CORE
SET_LEASE, SET_DELEGATION = 1024, 1040  # F_SETLEASE, F_SETDELEG
CORE_SCHEDULING = 62  # PR_SCHED_CORE
QUERY_PERSONALITY = 0xFFFFFFFF
MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB = 0x40000, 4, 0o4000
INTERNET_PROTOCOLS = (0, 1, 6, 17, 58)  # the default of the socket's type, ICMP, TCP, UDP, ICMPv6
DISK_CLASS, BEST_EFFORT, IDLE, DISK_LEVEL, USUAL_LEVEL = 0xE000, 0x4000, 0x6000, 7, 4
# By level. SOL_SOCKET (1): SO_ATTACH_FILTER, SO_ATTACH_BPF, and the same two for reuseport groups; TCP (6): TCP_MD5SIG, TCP_MD5SIG_EXT,
# TCP_AO_ADD_KEY; IPv6 (41): IPV6_FLOWLABEL_MGR.
SOCKET_OPTIONS = {1: (26, 50, 51, 52), 6: (14, 32, 38), 41: (32,)}

Instruction = tuple[int, int, int, int]


def _refuse(number: int) -> Instruction:
    return (RETURN, 0, 0, ERROR | number)


_ALLOW: Instruction = (RETURN, 0, 0, ALLOW)
_SUCCEED = _refuse(0)  # reports success without doing anything


def _argument(index: int) -> Instruction:
    """Loads the low half of an argument. For these arguments, the kernel itself ignores the high half."""
    return (LOAD, 0, 0, ARGUMENTS + 8 * index)


def _clone() -> list[Instruction]:
    return [_argument(0), (JUMP_SET, 0, 1, NEW_NAMESPACES), _refuse(errno.EPERM), _ALLOW]


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
    """Refuses input into another process's terminal (TIOCSTI), changes of line disciplines, the ioctl forms of fallocate, and private btrfs calls,
    because files of a read-only snapshot could not be removed."""
    typing = (TIOCSTI, TIOCLINUX, TIOCSETD)
    refused = (
        [(call, 0) for call in typing] + [(call, 1) for call in FALLOCATE_IOCTLS] + [(call, -1) for call in COPIES]
    )
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
    """Refuses leases: a process that opens, truncates or removes a leased file waits for up to 45 s, and that would include our own processes. The
    error is that of file systems without leases."""
    return [
        _argument(1),
        (JUMP_EQUAL, 1, 0, SET_LEASE),
        (JUMP_EQUAL, 0, 1, SET_DELEGATION),
        _refuse(errno.EINVAL),
        _ALLOW,
    ]


def _prctl() -> list[Instruction]:
    """Refuses core scheduling: while a process with its own cookie runs, the sibling hyperthread is idle, which no CPU limit counts. The error is
    that of a kernel without it."""
    return [_argument(0), (JUMP_EQUAL, 0, 1, CORE_SCHEDULING), _refuse(errno.EINVAL), _ALLOW]


def _huge_pages(index: int, flag: int) -> list[Instruction]:
    """Refuses huge pages, which the operator reserved for something else. The error is that of an empty pool: programs use ordinary pages."""
    return [_argument(index), (JUMP_SET, 0, 1, flag), _refuse(errno.ENOMEM), _ALLOW]


def _setsockopt() -> list[Instruction]:
    """Refuses options that use a pool of the whole machine, or memory that the kernel charges to no control group. The error is that of a kernel
    without the option.

    Socket filters are compiled into one pool (net.core.bpf_jit_limit), which the seccomp filters of other sandboxes need, too. Keys that
    sign TCP segments take 128 KiB or more per socket. There are 4,096 IPv6 flow labels, and the last quarter is for root only."""
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

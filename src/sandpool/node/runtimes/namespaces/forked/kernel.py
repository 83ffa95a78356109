"""System calls that the standard library lacks, and their constants. Errors are OSError with the path or call."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_SLAVE, MS_PRIVATE, MS_NOATIME = 0x1000, 0x4000, 0x80000, 0x40000, 0x400
MNT_DETACH = 2

OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 0x04, 0x40
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC, ATTR_IDMAP = 0x01, 0x02, 0x04, 0x08, 0x00100000
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000

RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT = 0x02, 0x04, 0x08, 0x10

OPENAT2_TRIES = 64

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_SECCOMP = 1, 4, 8, 22
PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 24, 36, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP = 28, 4

_MACHINE = os.uname().machine
# Calls from 424 on have the same number everywhere.
_NUMBERS = {
    "open_tree": 428, "move_mount": 429, "close_range": 436, "openat2": 437, "mount_setattr": 442,
    "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446,
    **({"pivot_root": 155, "capset": 126} if _MACHINE == "x86_64" else {"pivot_root": 41, "capset": 91}),
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_fork = ctypes.PyDLL(None, use_errno=True).fork  # PyDLL keeps the GIL, as os.fork does


def _checked(result: int, what: str | bytes) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def _call(name: str, *arguments: object, what: str | bytes = "") -> int:
    """Makes a system call. Integers are passed as long, so that all bits of a register are set."""
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _checked(int(_libc.syscall(ctypes.c_long(_NUMBERS[name]), *wide)), what or name)


def fork() -> int:
    """os.fork for a process with one thread that holds no lock. Python would reset its locks in every child, which writes to 200 pages that
    must then be copied. The only other effect of skipping that is that `random` is not seeded again."""
    return _checked(_fork(), "fork")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def setns(file: int, kind: int) -> None:
    _checked(_libc.setns(file, kind), "setns")


def here(file: int) -> str:
    """A /proc path of a descriptor, for calls that only take paths."""
    return f"/proc/self/fd/{file}"


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    data = os.fsencode(options) if options else None
    _checked(
        _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data),
        f"mount {kind or source} on {target}",
    )


def unmount(target: str, flags: int = MNT_DETACH) -> None:
    _checked(_libc.umount2(os.fsencode(target), flags), target)


def pivot_here() -> None:
    """Makes the current directory the root and detaches the old root."""
    _call("pivot_root", b".", b".")
    unmount(".")
    os.chdir("/")


def open_tree(path: str, *, directory: int = AT_FDCWD, recursive: bool = False) -> int:
    """A detached copy of the mount at that path. An empty path means `directory` itself."""
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC
    flags |= (AT_EMPTY_PATH if not path else 0) | (AT_RECURSIVE if recursive else 0)
    return _call("open_tree", directory, os.fsencode(path), flags, what=path)


def move_mount(tree: int, target: int) -> None:
    """Attaches a detached mount to the open file or directory `target`, so that no path is resolved again."""
    _call("move_mount", tree, b"", target, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)


def mount_setattr(
    tree: int, attributes: int, userns: int = 0, *, recursive: bool = False, propagation: int = 0
) -> None:
    data = struct.pack("=QQQQ", attributes | (ATTR_IDMAP if userns else 0), 0, propagation, userns)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    _call("mount_setattr", tree, b"", flags, ctypes.c_char_p(data), len(data))


def openat2(directory: int, path: str, flags: int, resolve: int, mode: int = 0) -> int:
    """Calls openat2, and repeats it on EAGAIN up to a limit: EAGAIN means that a directory of the path was renamed in the meantime, so the kernel
    cannot tell whether `..` stays inside."""
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, mode, resolve)
    for _ in range(OPENAT2_TRIES):
        try:
            return _call("openat2", directory, os.fsencode(path), ctypes.c_char_p(how), len(how), what=path)
        except BlockingIOError:
            continue
    raise OSError(errno.ELOOP, "directories of the path are renamed all the time", path)


def close_all_but(keep: set[int]) -> None:
    """Closes every file of this process except these."""
    low = 0
    for file in [*sorted(keep), 1 << 30]:
        if file > low:
            _close_range(low, file - 1)
        low = file + 1


def _close_range(first: int, last: int) -> None:
    try:
        _call("close_range", first, last, 0)
    except OSError:  # before Linux 5.9
        os.closerange(first, min(last + 1, os.sysconf("SC_OPEN_MAX")))


def prctl(option: int, value: int = 0, more: int = 0) -> None:
    wide = [ctypes.c_ulong(each) for each in (value, more, 0, 0)]
    _checked(_libc.prctl(option, *wide), f"prctl {option}")


def default_signal(number: int) -> None:
    """signal.signal(number, SIG_DFL), without Python's look-up of names, which would write to 75 pages."""
    _libc.signal(number, None)


def show_as(title: bytes) -> None:
    """Sets the process title of this process and all that are forked from it, so that its arguments are not visible inside."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if start and end > start:
        ctypes.memmove(start, title[: end - start - 1].ljust(end - start, b"\0"), end - start)


def drop_capabilities() -> None:
    """Drops all capabilities from every set, so that no program can regain one."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # beyond the last capability of this kernel
    header = struct.pack("=Ii", 0x20080522, 0)
    _call("capset", ctypes.c_char_p(header), ctypes.c_char_p(bytes(24)))


def install_filter(program: bytes) -> None:
    """Installs a seccomp filter for this process and all that it starts."""
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _checked(
        _libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.c_char_p(head), ctypes.c_ulong(0), ctypes.c_ulong(0)),
        "seccomp",
    )


def landlock_abi() -> int:
    """The Landlock ABI version; 0 if the kernel has none."""
    try:
        return _call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def landlock_ruleset(attributes: bytes) -> int:
    return _call("landlock_create_ruleset", ctypes.c_char_p(attributes), len(attributes), 0)


def landlock_allow(ruleset: int, access: int, directory: int) -> None:
    rule = struct.pack("=Qi", access, directory)
    _call("landlock_add_rule", ruleset, 1, ctypes.c_char_p(rule), 0)


def landlock_restrict(ruleset: int) -> None:
    _call("landlock_restrict_self", ruleset, 0)


def touch_files_as(uid: int, gid: int) -> None:
    """Sets the ids for file access (fsuid, fsgid) until the ids change; capabilities stay. The system calls report no errors, so they are
    called twice to check the result."""
    for change, wanted in ((_libc.setfsgid, gid), (_libc.setfsuid, uid)):
        change(ctypes.c_uint(wanted))
        if change(ctypes.c_uint(wanted)) != wanted:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), "setfsuid")


def sethostname(name: str) -> None:
    data = name.encode()
    _checked(_libc.sethostname(data, ctypes.c_size_t(len(data))), "sethostname")

"""The system calls that sandboxed programs may not make, with their numbers on the machines that are supported."""

from __future__ import annotations

from dataclasses import dataclass

# Calls that give nothing to an ordinary program and much to one that wants out: (x86_64, arm64); None: there is none.
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
    # programs in the kernel, and ways around the checks of others
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

# Calls that a sandbox's kernel does not have, as one that was built without them: programs fall back instead of failing.
# Asynchronous I/O takes from a pool of the whole machine (fs.aio-max-nr), which the kernel divides among nobody. A rule of Landlock
# keeps a file on disk that nobody has open and that has no name: no measure of a sandbox's files would ever find it. Secret memory
# breaks up the large pages of the whole machine. Attributes of files are also an order to take any amount of disk (see filter.py).
ABSENT: dict[str, tuple[int, int]] = {
    "io_setup": (206, 0), "io_destroy": (207, 1), "io_submit": (209, 2), "io_cancel": (210, 3),
    "io_getevents": (208, 4), "io_pgetevents": (333, 292),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446),
    "memfd_secret": (447, 447), "file_setattr": (469, 469),
}  # fmt: skip

# Calls that are allowed, but not with every argument; see filter.py.
JUDGED = {
    "mmap": (9, 222), "memfd_create": (319, 279), "shmget": (29, 194),
    "clone": (56, 220), "clone3": (435, 435), "socket": (41, 198), "socketpair": (53, 199), "ioctl": (16, 29),
    "personality": (135, 92), "prlimit64": (302, 261), "setrlimit": (160, 164), "fallocate": (285, 47),
    "setsockopt": (54, 208), "ioprio_set": (251, 30), "fcntl": (72, 25),
    "prctl": (157, 167),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Architecture:
    audit: int  # as seccomp names it
    forbidden: tuple[int, ...]
    absent: tuple[int, ...]
    judged: dict[str, int]
    x32: bool  # the same entry also takes the calls of another ABI, marked by a bit


def architecture(machine: str) -> Architecture | None:
    """None: not supported, and then nothing may be started."""
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

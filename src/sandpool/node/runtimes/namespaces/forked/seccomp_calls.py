"""System calls by how the filter of sandboxes (seccomp.py) treats them: numbers on (x86_64, arm64), None if there is no such call.

A call that is in none of these tables is allowed if it is one of `KNOWN`. Newer calls get ENOSYS, as on an older kernel, until somebody has
asked which kernel objects they create, who is charged for them, and what bounds their number.
"""

from __future__ import annotations

# The numbers of all calls up to Linux 6.10 (mseal), on x86_64 and arm64.
KNOWN = (((0, 334), (424, 462)), ((0, 243), (260, 294), (424, 462)))

# Calls that ordinary programs do not need and that help to escape.
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
# open, so that measuring a sandbox's files would not find it. Secret memory breaks up the huge pages of the whole machine. Memory policies of
# shared memory are charged to no control group, and there can be one for each page, even of a file without pages. cachestat tells what other
# sandboxes have read. setxattrat has its size in memory, which a filter cannot read; file_setattr can make every small write allocate any amount
# of disk, as FS_IOC_FSSETXATTR can (see seccomp.py). Both are newer than `KNOWN`, and named because other ways to do the same are filtered.
ABSENT: dict[str, tuple[int, int]] = {
    "io_setup": (206, 0), "io_destroy": (207, 1), "io_submit": (209, 2), "io_cancel": (210, 3),
    "io_getevents": (208, 4), "io_pgetevents": (333, 292),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446),
    "memfd_secret": (447, 447), "file_setattr": (469, 469), "setxattrat": (463, 463), "cachestat": (451, 451),
    "mbind": (237, 235), "get_mempolicy": (239, 236), "set_mempolicy": (238, 237), "set_mempolicy_home_node": (450, 450),
    "lsm_get_self_attr": (459, 459), "lsm_list_modules": (461, 461),
}  # fmt: skip

# Calls that are allowed only with some arguments; see `instructions` in seccomp.py.
JUDGED: dict[str, tuple[int | None, int | None]] = {
    "mmap": (9, 222), "memfd_create": (319, 279), "shmget": (29, 194),
    "clone": (56, 220), "clone3": (435, 435), "socket": (41, 198), "socketpair": (53, 199), "ioctl": (16, 29),
    "personality": (135, 92), "prlimit64": (302, 261), "setrlimit": (160, 164), "fallocate": (285, 47),
    "setsockopt": (54, 208), "ioprio_set": (251, 30), "fcntl": (72, 25),
    "prctl": (157, 167), "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "madvise": (28, 233),
}  # fmt: skip

"""Attempts on a kernel that belongs to the sandbox: whatever it shows or changes must be its own, and nothing of the machine's.

They run where a sandbox has such a kernel, and without isolation, where each finds the machine. What they compare with are facts
of the machine that the test was told by the machine's kernel.
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
import struct
import subprocess
import sys

from support.escape.hostile import Absent, Targets, attempt, every, first

# What such a kernel makes itself: null, zero, full, random, urandom, tty, ptmx, fuse, tun.
MADE = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2), (10, 229), (10, 200)}
TERMINALS = range(136, 144)
FIRST = """
import os, sys, time
def low():
    with open("/proc/self/oom_score_adj", "w") as file: file.write(sys.argv[2])
for each in (lambda: os.setpriority(os.PRIO_PROCESS, 0, -5), low, lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))):
    try: each()
    except OSError: pass
print("done", flush=True)
time.sleep(2)
"""


@attempt(only_own_kernel=True)
def name_and_age_of_the_machines_kernel(t: Targets) -> str | None:
    def read(path: str) -> str | None:
        with open(path) as file:
            said = file.read()
        return next((f"{path} tells {fact}" for fact in t["machine"]["kernel"] if fact in said), None)

    return first(lambda path=path: read(path) for path in ("/proc/version", "/proc/sys/kernel/random/boot_id"))


@attempt(only_own_kernel=True, privileged=True)
def log_of_the_machines_kernel(t: Targets) -> str | None:
    buffer = ctypes.create_string_buffer(1 << 20)
    length = ctypes.CDLL(None, use_errno=True).klogctl(3, buffer, len(buffer))
    if length < 0:
        raise OSError(ctypes.get_errno(), "no log")
    known = set(t["machine"]["log"])
    if not known:
        raise Absent("the kernel's log is empty or nobody's to read")
    said = (line.partition("] ")[2] for line in buffer.raw[:length].decode(errors="replace").splitlines())
    return next((f"read {line!r}" for line in said if line in known), None)


@attempt(only_own_kernel=True)
def namespaces_of_the_machine(t: Targets) -> str | None:
    """Numbered by the kernel: the same number is the same namespace."""
    known = set(t["machine"]["namespaces"])
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    links = (f"/proc/{pid}/ns/{name}" for pid in ["self", "1", *pids] for name in ("mnt", "net", "pid", "ipc", "uts"))

    def tried(path: str) -> str | None:
        found = os.readlink(path)
        return f"{path} is {found}" if found in known else None

    return first(lambda path=path: tried(path) for path in links)


@attempt(only_own_kernel=True)
def devices_and_drivers_of_the_machine(t: Targets) -> str | None:
    """By the names that the machine has for its disks, cards, buses and modules."""
    known = set(t["machine"]["hardware"])
    if not known:
        raise Absent("the machine shows no hardware")
    for folder, inner, names in os.walk("/sys"):
        for name in (*inner, *names):
            if name in known:
                return f"{folder}/{name}"
    with open("/proc/modules") as file:
        return next((line for line in file if line.split()[0] in known), None)


@attempt(only_own_kernel=True, privileged=True)
def device_files_of_the_machine(t: Targets) -> str | None:
    """Whatever is not among those that the kernel makes itself. Never opened."""
    seen = []
    for folder, _, names in os.walk("/dev"):
        for name in names:
            found = os.lstat(f"{folder}/{name}")
            number = (os.major(found.st_rdev), os.minor(found.st_rdev))
            made = stat.S_ISCHR(found.st_mode) and (number in MADE or number[0] in TERMINALS)
            if not made and (stat.S_ISBLK(found.st_mode) or stat.S_ISCHR(found.st_mode)):
                seen.append(name)
    if not seen and t["scan"]:
        raise Absent("the machine has no other device files")
    return ", ".join(seen[:10]) or None


@attempt(only_own_kernel=True)
def mounts_as_the_machine_knows_them(t: Targets) -> str | None:
    """What is mounted from where, and any word about where the product keeps its data."""
    known = {tuple(each) for each in t["machine"]["mounts"]}
    for name in ("/proc/self/mountinfo", "/proc/self/mounts"):
        with open(name) as file:
            said = file.read()
        if t["folder"] in said:
            return f"{name} tells {t['folder']}"
        for line in said.splitlines() if name.endswith("mountinfo") else ():
            head, _, tail = line.partition(" - ")
            if (found := (*head.split()[3:5], *tail.split()[:2])) in known:
                return f"{found} is mounted"
    return None


@attempt(only_own_kernel=True)
def what_init_has_of_the_machine(t: Targets) -> str | None:
    """The container's own command is pid 1. What it was given is the sandbox's; paths and secrets of the machine are not."""
    words = [t["folder"], *t["installed"]]
    place = f"/proc/{t['init']}"

    def mentioned(said: str) -> str | None:
        return next((f"tells {word}" for word in words if word in said), None)

    def read(name: str) -> str | None:
        with open(f"{place}/{name}", "rb") as file:
            said = file.read(1 << 20)
        return "read a secret" if t.found(said) else mentioned(said.decode(errors="replace"))

    links = ["exe", "root", "cwd", *(f"fd/{name}" for name in _names(f"{place}/fd"))]
    return first(lambda name=name: mentioned(os.readlink(f"{place}/{name}")) for name in links) or first(
        lambda name=name: read(name) for name in ("environ", "cmdline", "maps", "cgroup", "mountinfo")
    )


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


@attempt(only_own_kernel=True)
def change_settings_of_the_machine(t: Targets) -> str | None:
    """Really written, wherever it is let: what counts is seen outside."""

    def more(path: str) -> None:
        with open(path) as file:
            number = re.match(r"\d+", file.read())
        with open(path, "w") as file:
            file.write(str(int(number[0]) + 1) if number else "1")

    every({path: lambda path=path: more(path) for path in t["settings"]})
    return None


@attempt(only_own_kernel=True, privileged=True, capability=31)
def capabilities_on_a_file_of_the_machine(t: Targets) -> str | None:
    """Volumes are folders of the machine: what is written to a file there must not count there. It is seen outside."""
    for folder in t["kept_folders"]:
        path = f"{folder}/capable-{os.getpid()}"
        try:
            with open(path, "w"):
                pass
            os.chmod(path, 0o755)
            os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 21, 0, 0, 0))
        except OSError:
            continue
    return None


@attempt(only_own_kernel=True, privileged=True)
def be_first_on_the_machine(t: Targets) -> str | None:
    """Processor time and memory of the machine go to whoever its own kernel knows as first: it is seen outside, while the process
    that asked for it is still there."""
    words = [sys.executable, "-S", "-c", FIRST, t["first_mark"], str(t["spared"])]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    return None

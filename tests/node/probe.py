"""Says whether this machine can hold a real node, and if not, exactly what is missing. Changes nothing that stays.

    python tests/node/probe.py        prints every fact it looked at; exit code 1 if a node cannot run here

The node gets namespaces of its own (mounts, processes, network), so what is tried here is tried in such namespaces too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

UNSHARE = ("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")
"""A machine within the machine. It ends with its first process, and its mounts and network with it."""
CGROUPS = Path("/sys/fs/cgroup")
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}
V1 = ("cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer")
V2 = ("cpu", "cpuset", "memory", "pids")
TRY_TIMEOUT = 30


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that a node needs. An empty `trouble`: it is here."""

    what: str
    trouble: str = ""


def facts() -> Iterator[Fact]:
    """In the order in which they build on each other; the caller may stop at the first trouble."""
    yield Fact("Linux", "" if sys.platform == "linux" else f"this is {sys.platform}: containers need Linux")
    yield Fact(
        "root",
        "" if os.geteuid() == 0 else "containerd and the kubelet need root; run as root, in a throw-away machine",
    )
    yield Fact("capabilities", lacking_capabilities(Path("/proc/self/status").read_text()))
    yield Fact("programs", _programs("unshare", "mount", "ip"))
    yield Fact("seccomp", "" if Path("/proc/sys/kernel/seccomp").is_dir() else "the kernel has no seccomp filters")
    yield Fact("cgroup controllers", lacking_controllers(CGROUPS))
    yield Fact("own cgroups", _cgroups_writable(controller_folders(CGROUPS)))
    yield Fact("own namespaces", _tried("true"))
    yield Fact("own mounts", _tried("mount -t tmpfs none /run"))
    yield Fact("own bridges", _tried("ip link set lo up && ip link add b0 type bridge"))
    yield Fact("own network pairs", _tried("ip link add v0 type veth peer name v1"))
    with tempfile.TemporaryDirectory(prefix="sandpool-probe-") as folder:
        layers = f"cd {folder} && mkdir l u w m && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w none m"
        yield Fact("overlay mounts", _tried(layers))


def forbidden() -> str:
    """Why no node can run here; empty when one can."""
    return next((f"{fact.what}: {fact.trouble}" for fact in facts() if fact.trouble), "")


def lacking_capabilities(status: str) -> str:
    (line,) = [line for line in status.splitlines() if line.startswith("CapEff:")]
    held = int(line.split()[1], 16)
    absent = [name for name, bit in CAPABILITIES.items() if not held >> bit & 1]
    return f"this process lacks {', '.join(absent)}: is it in an unprivileged container?" if absent else ""


def unified(cgroups: Path) -> bool:
    """Version 2 only. A machine that mounts both counts as version 1: the controllers are there."""
    return (cgroups / "cgroup.controllers").exists()


def lacking_controllers(cgroups: Path) -> str:
    if unified(cgroups):
        here = (cgroups / "cgroup.subtree_control").read_text().split()
        absent = [name for name in V2 if name not in here]
        where = f"{cgroups}/cgroup.subtree_control"
    else:
        absent = [name for name in V1 if not (cgroups / name / "cgroup.procs").exists()]
        where = str(cgroups)
    return f"{', '.join(absent)} not in {where}" if absent else ""


def controller_folders(cgroups: Path) -> list[Path]:
    """Every hierarchy in which a node makes groups."""
    if unified(cgroups):
        return [cgroups]
    return sorted({each.resolve() for each in cgroups.iterdir() if (each / "cgroup.procs").exists()})


def _cgroups_writable(folders: list[Path]) -> str:
    for folder in folders:
        trial = folder / f"sandpool-probe-{os.getpid()}"
        try:
            trial.mkdir()
            trial.rmdir()
        except OSError as error:
            return f"no group can be made in {folder} ({error.strerror})"
    return ""


def _programs(*names: str) -> str:
    absent = [name for name in names if shutil.which(name) is None]
    return f"{', '.join(absent)} not on PATH: install util-linux and iproute2" if absent else ""


def _tried(script: str) -> str:
    command = [*UNSHARE, "sh", "-e", "-c", script]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TRY_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"`{script}` in namespaces of its own: {error}"
    if done.returncode == 0:
        return ""
    return f"`{script}` in namespaces of its own failed: {done.stderr.strip() or done.returncode}"


def main(say: Callable[[str], None] = print) -> int:
    trouble = False
    for fact in facts():
        say(f"{'NO ' if fact.trouble else 'yes'} {fact.what}{': ' if fact.trouble else ''}{fact.trouble}")
        trouble = trouble or bool(fact.trouble)
    return int(trouble)


if __name__ == "__main__":
    sys.exit(main())

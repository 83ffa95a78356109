"""From plans to what workers are told. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Bandwidth, ContainerPlan, ExecPlan, Limits, Mount, SandboxPlan, Stdio
from sandpool.node.runtimes.namespaces.forked.cgroup_files import Group
from sandpool.node.runtimes.namespaces.forked.frames import Message

DEFAULT_PIDS = 1024
DEFAULT_FILES = 65536
LEAST_FILES = 64
LOCKED_BYTES = 8 << 20
QUEUED_BYTES = 800 << 10  # of message queues
PENDING_SIGNALS = 1024  # and timers, which are counted with them
TERMINALS, LEAST_TERMINALS = 128, 4  # of a sandbox, and of each of its containers
MOST_IN_MEMORY = 256 << 20
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def check_name(name: str) -> None:
    """Names become names of folders and control groups."""
    if _NAME.fullmatch(name) is None:
        raise NodeError("InvalidName", f"{name!r} is no name of a pod or container")


def with_defaults(limits: Limits, io: Bandwidth | None = None) -> Limits:
    """Nothing is without any bound that could harm the machine. Pid 1 is the runtime's and is not counted."""
    pids = DEFAULT_PIDS if limits.pids is None else limits.pids
    return Limits(limits.cpu, limits.memory, pids + 1, limits.files, limits.storage, limits.io or io)


def stricter(container: Limits, sandbox: Limits) -> Limits:
    """What of a container's limits the sandbox's own do not hold already."""
    return Limits(
        container.cpu if container.cpu != sandbox.cpu else None,
        container.memory if container.memory != sandbox.memory else None,
        container.pids if container.pids != sandbox.pids else None,
    )


def rlimits(
    container: Limits, sandbox: Limits, enforced: frozenset[str], *, count_processes: bool, most_files: int
) -> dict[str, int]:
    """Where a control group holds a limit, the process limit is a second line; where none does, the only one."""
    found = {
        "CORE": 1,  # bytes: at 0 a machine that pipes core files to a program would still do so
        "NICE": 0,  # none of what lets one go before others, which an operator may have been given
        "RTPRIO": 0,
        "MEMLOCK": LOCKED_BYTES,
        "MSGQUEUE": QUEUED_BYTES,
        "SIGPENDING": PENDING_SIGNALS,
        "NOFILE": max(LEAST_FILES, min(container.files or sandbox.files or DEFAULT_FILES, most_files)),
    }
    pids = container.pids or sandbox.pids or DEFAULT_PIDS
    if count_processes:
        found["NPROC"] = pids + 1
    memory = container.memory or sandbox.memory
    if memory is not None and "memory" not in enforced:
        found["DATA"] = memory
    return found


def most_files(own: int, *, ranged: bool) -> int:
    """The kernel counts files that are on their way through sockets by person, and refuses whoever sends one while there are
    more than the sender may have open. Where sandboxes are the same person as we, they may have fewer: `own` is our limit."""
    return DEFAULT_FILES if ranged else max(LEAST_FILES, own // 2)


def terminals(others: Iterable[int], left: int = 0) -> int:
    """Of a new container: half of what the sandbox's living containers, and those of its tenant that have ended, have left of its share."""
    return max(LEAST_TERMINALS, (TERMINALS - sum(others) - left) // 2)


def in_memory(storage: int | None) -> int | None:
    """The size of a writable layer that is held in memory; a larger one is on disk, where nobody counts."""
    return storage if storage is not None and storage <= MOST_IN_MEMORY else None


def etc_files(hostname: str) -> dict[str, str]:
    """What depends on the pod. There is no name server inside: names are looked up by the egress proxy."""
    return {
        "etc/hostname": f"{hostname}\n",
        "etc/hosts": f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.0.1\t{hostname}\n",
        "etc/resolv.conf": "# Names are resolved by the egress proxy; see the *_PROXY variables.\n",
    }


def share(plan: SandboxPlan, ids: tuple[int, int, int], cgroups: list[Group], quotas: dict[str, int]) -> Message:
    return {
        "do": "share", "hostname": plan.hostname, "ids": ids, "egress": plan.egress_port, "cgroups": cgroups,
        "quotas": quotas,
    }  # fmt: skip


def mount(each: Mount, volume: str) -> Message:
    found: Message = {
        "target": each.target, "source": None, "volume": volume, "read_only": each.read_only,
        "owner": None if each.owner is None else (each.owner.uid, each.owner.gid),
    }  # fmt: skip
    return found if each.source is None else found | source(each.source, each.within, each.sub_path, make=each.make)


def counted(each: Mount, uid: str) -> bool:
    """Whether it is of a volume that is part of the pod's ephemeral storage: all of that has the pod's uid in its path."""
    return bool(each.volume) and each.source is not None and each.within is None and uid in each.source.parts


def source(path: Path, within: Path | None = None, sub_path: str = "", *, make: bool = False) -> Message:
    """Where to look for what is mounted, as forked/sources.py takes it."""
    above = path.parent if within is None else within
    if not path.is_relative_to(above):
        raise NodeError("InvalidPath", f"{path} does not lie in {above}")
    return {
        "source": str(path), "within": str(above), "inside": str(path.relative_to(above)), "sub": sub_path, "make": make,
        "ours": within is None,
    }  # fmt: skip


def command(argv: tuple[str, ...], env: dict[str, str], cwd: str, stdio: Stdio, *, tty: bool) -> Message:
    given = [file is not None for file in (stdio.stdin, stdio.stdout, stdio.stderr)]
    return {"argv": argv, "env": env, "cwd": cwd, "tty": tty, "stdio": given}


def files(stdio: Stdio, *, tty: bool) -> list[int]:
    if tty:
        return []
    return [file for file in (stdio.stdin, stdio.stdout, stdio.stderr) if file is not None]


def execute(plan: ExecPlan, stdio: Stdio, number: int) -> Message:
    return {"do": "exec", "task": number, **command(plan.argv, dict(plan.env), plan.cwd, stdio, tty=plan.tty)}


def container(
    plan: ContainerPlan, stdio: Stdio, sandbox: SandboxPlan, skeleton: Path, volumes: dict[str, str]
) -> Message:
    """All but what depends on where the sandbox's namespaces and groups are."""
    env = {"PATH": PATH, "HOSTNAME": sandbox.hostname, **plan.env}
    return {
        "do": "container",
        "folder": str(sandbox.folder / f"{plan.name}-{plan.attempt}"),
        "layers": [str(layer) for layer in plan.rootfs.layers],
        "host": str(skeleton) if plan.rootfs.host else None,
        "files": etc_files(sandbox.hostname),
        "mounts": [
            mount(each, volumes.get(each.volume, "")) | {"counted": counted(each, sandbox.id)} for each in plan.mounts
        ],
        "storage": in_memory(plan.limits.storage or sandbox.limits.storage),
        "read_only": plan.read_only,
        "user": plan.user,
        "groups": plan.groups,
        "served": plan.served,
        **command(plan.argv, env, plan.cwd, stdio, tty=plan.tty),
    }  # fmt: skip

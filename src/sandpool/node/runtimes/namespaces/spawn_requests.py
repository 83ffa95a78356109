"""Translates sandbox and container plans into requests for workers of the fork server. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Bandwidth, ContainerPlan, ExecPlan, Limits, Mount, SandboxPlan, Stdio
from sandpool.node.runtimes.namespaces.forked.cgroups import Group
from sandpool.node.runtimes.namespaces.forked.frames import Message

DEFAULT_PIDS = 1024
DEFAULT_FILES = 65536
LEAST_FILES = 64
LOCKED_BYTES = 8 << 20
QUEUED_BYTES = 800 << 10  # RLIMIT_MSGQUEUE
PENDING_SIGNALS = 1024  # RLIMIT_SIGPENDING, which also counts timers
TERMINALS, LEAST_TERMINALS = 128, 4  # of a sandbox, and of each of its containers
MOST_IN_MEMORY = 256 << 20
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def check_name(name: str) -> None:
    """Checks a name that is used for directories and control groups."""
    if _NAME.fullmatch(name) is None:
        raise NodeError("InvalidName", f"{name!r} is not a valid name of a pod or container")


def with_defaults(limits: Limits, io: Bandwidth | None = None) -> Limits:
    """Fills in defaults, so that nothing that could harm the machine is unlimited. Pid 1 belongs to the runtime and does not count."""
    pids = DEFAULT_PIDS if limits.pids is None else limits.pids
    return Limits(limits.cpu, limits.memory, pids + 1, limits.files, limits.storage, limits.io or io)


def stricter(container: Limits, sandbox: Limits) -> Limits:
    """The limits of a container that are stricter than those of its sandbox."""
    return Limits(
        container.cpu if container.cpu != sandbox.cpu else None,
        container.memory if container.memory != sandbox.memory else None,
        container.pids if container.pids != sandbox.pids else None,
    )


def rlimits(
    container: Limits, sandbox: Limits, enforced: frozenset[str], *, count_processes: bool, most_files: int
) -> dict[str, int]:
    """The rlimits of a container: a second line of defence where control groups enforce a limit, the only one elsewhere."""
    found = {
        "CORE": 1,  # bytes: at 0 a machine that pipes core files to a program would still do so
        "NICE": 0,  # no raised priority, which the operator's own session may have
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
    """The most files that a process in a sandbox may open. The kernel counts files in flight through sockets per user, and refuses to send one while
    there are more than the sender's open file limit. So sandboxes that run as our own user must have a lower limit than `own`, which is ours."""
    return DEFAULT_FILES if ranged else max(LEAST_FILES, own // 2)


def terminal_quota(others: Iterable[int], left: int = 0) -> int:
    """The maximum terminals of a new container: half of what its sandbox's share has left after those of live containers and those that the
    tenant's ended containers left in use."""
    return max(LEAST_TERMINALS, (TERMINALS - sum(others) - left) // 2)


def in_memory(storage: int | None) -> int | None:
    """The size of a writable layer that is held in memory; a larger one is on disk, without a fixed size."""
    return storage if storage is not None and storage <= MOST_IN_MEMORY else None


def etc_files(hostname: str) -> dict[str, str]:
    """The files of /etc that depend on the pod. No name server is configured, because the egress proxy resolves names."""
    return {
        "etc/hostname": f"{hostname}\n",
        "etc/hosts": f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.0.1\t{hostname}\n",
        "etc/resolv.conf": "# Names are resolved by the egress proxy; see the *_PROXY variables.\n",
    }


def share_request(
    plan: SandboxPlan, ids: tuple[int, int, int], cgroups: list[Group], quotas: dict[str, int]
) -> Message:
    return {
        "do": "share", "hostname": plan.hostname, "ids": ids, "egress": plan.egress_port, "cgroups": cgroups,
        "quotas": quotas,
    }  # fmt: skip


def mount_request(each: Mount, volume: str) -> Message:
    found: Message = {
        "target": each.target, "source": None, "volume": volume, "read_only": each.read_only,
        "owner": None if each.owner is None else (each.owner.uid, each.owner.gid),
    }  # fmt: skip
    return (
        found if each.source is None else found | mount_source(each.source, each.within, each.sub_path, make=each.make)
    )


def counted(each: Mount, uid: str) -> bool:
    """Whether the mount's volume counts as the pod's ephemeral storage: such volumes have the pod's uid in their path."""
    return bool(each.volume) and each.source is not None and each.within is None and uid in each.source.parts


def mount_source(path: Path, within: Path | None = None, sub_path: str = "", *, make: bool = False) -> Message:
    """The source of a mount, in the form that forked/mount_sources.py expects."""
    above = path.parent if within is None else within
    if not path.is_relative_to(above):
        raise NodeError("InvalidPath", f"{path} does not lie in {above}")
    return {
        "source": str(path), "within": str(above), "inside": str(path.relative_to(above)), "sub": sub_path, "make": make,
        "ours": within is None,
    }  # fmt: skip


def command_fields(argv: tuple[str, ...], env: dict[str, str], cwd: str, stdio: Stdio, *, tty: bool) -> Message:
    given = [file is not None for file in (stdio.stdin, stdio.stdout, stdio.stderr)]
    return {"argv": argv, "env": env, "cwd": cwd, "tty": tty, "stdio": given}


def stdio_files(stdio: Stdio, *, tty: bool) -> list[int]:
    if tty:
        return []
    return [file for file in (stdio.stdin, stdio.stdout, stdio.stderr) if file is not None]


def exec_request(plan: ExecPlan, stdio: Stdio, number: int) -> Message:
    return {"do": "exec", "task": number, **command_fields(plan.argv, dict(plan.env), plan.cwd, stdio, tty=plan.tty)}


def container(
    plan: ContainerPlan, stdio: Stdio, sandbox: SandboxPlan, skeleton: Path, volumes: dict[str, str]
) -> Message:
    """The request for a container, without what depends on the sandbox's namespaces and control groups."""
    env = {"PATH": PATH, "HOSTNAME": sandbox.hostname, **plan.env}
    return {
        "do": "container",
        "directory": str(sandbox.directory / f"{plan.name}-{plan.attempt}"),
        "layers": [str(layer) for layer in plan.rootfs.layers],
        "host": str(skeleton) if plan.rootfs.host else None,
        "files": etc_files(sandbox.hostname),
        "mounts": [
            mount_request(each, volumes.get(each.volume, "")) | {"counted": counted(each, sandbox.id)} for each in plan.mounts
        ],
        "storage": in_memory(plan.limits.storage or sandbox.limits.storage),
        "read_only": plan.read_only,
        "user": plan.user,
        "groups": plan.groups,
        "served": plan.served,
        **command_fields(plan.argv, env, plan.cwd, stdio, tty=plan.tty),
    }  # fmt: skip

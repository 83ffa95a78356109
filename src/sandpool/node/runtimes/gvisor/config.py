"""What runsc is told: its flags, and the OCI description of each container. Pure.

Places are those of the small root that runsc itself is given (forked/world.py). What only that side can know - where the root
file system came to be, which numbers a user's name stands for - is put in there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Bandwidth, ContainerPlan, ExecPlan, Limits, SandboxPlan
from sandpool.node.runtimes.gvisor.forked.world import STATE, VOLUMES
from sandpool.node.runtimes.namespaces.orders import DEFAULT_FILES, LEAST_FILES, LOCKED_BYTES, PATH

ROOT = "pod"  # the container that the others join
SHM_BYTES = 64 << 20
OVERHEAD_BYTES = 64 << 20  # of gVisor's own kernel, which the machine counts as the pod's
DEFAULT_PIDS = 1024
PIDS_EACH, PIDS_MORE = 4, 256  # threads of the machine for one process of a sandbox, and for the kernel itself
QUIET = ["nosuid", "noexec", "nodev"]

Json = dict[str, Any]


def flags(storage: int | None) -> list[str]:
    """Of every command to a sandbox. The network is that of a namespace in which there is only loopback. Writes go to a file
    without a name above the read-only root."""
    size = f",size={storage}" if storage else ""
    return [
        f"--root={STATE}", "--platform=systrap", "--network=sandbox", "--ignore-cgroups", "--host-uds=open",
        f"--overlay2=root:dir={STATE}{size}",
    ]  # fmt: skip


def sandbox_config(plan: SandboxPlan, argv: tuple[str, ...], mounts: list[Json]) -> Json:
    """Of the container that holds the sandbox. The namespace of the network is the one that runsc is started in."""
    process = _process(argv, {"PATH": PATH}, "/", tty=False)
    return _container(plan, process, mounts, {"io.kubernetes.cri.container-type": "sandbox"}, read_only=True)


def container_config(plan: ContainerPlan, sandbox: SandboxPlan) -> Json:
    env = {"PATH": PATH, "HOSTNAME": sandbox.hostname, **({"TERM": "xterm"} if plan.tty else {}), **plan.env}
    process = _process(plan.argv, env, plan.cwd or "/", tty=plan.tty)
    process["rlimits"] = rlimits(plan.limits, sandbox.limits)
    joins = {"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": ROOT}
    mounts = [volume(number, each.target, read_only=each.read_only) for number, each in enumerate(plan.mounts)]
    return _container(sandbox, process, mounts, joins, read_only=plan.read_only)


def exec_process(plan: ExecPlan, container: Json) -> Json:
    """With the identity and the limits of the container's own process."""
    env = {**unlisted(container["env"]), **({"TERM": "xterm"} if plan.tty else {}), **plan.env}
    return {
        **container,
        "args": list(plan.argv),
        "env": listed(env),
        "cwd": plan.cwd or container["cwd"],
        "terminal": plan.tty,
    }


def check(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """What no program can be given."""
    if not argv:
        raise NodeError("StartError", "there is no command; set the container's command or use an image that has one")
    if any("\0" in each for each in (*argv, *env, *env.values())) or any("=" in name or not name for name in env):
        raise NodeError(
            "StartError", "the command or its environment cannot be passed on: a name or value is not valid"
        )


def volume(number: int, target: str, *, read_only: bool) -> Json:
    options = ["rbind", "ro" if read_only else "rw", "nosuid", "nodev"]
    return {"destination": target, "type": "bind", "source": f"{VOLUMES}/{number}", "options": options}


def listed(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items()]


def unlisted(env: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in env)}


def rlimits(container: Limits, sandbox: Limits) -> list[Json]:
    files = max(LEAST_FILES, container.files or sandbox.files or DEFAULT_FILES)
    wanted = {"RLIMIT_CORE": 0, "RLIMIT_MEMLOCK": LOCKED_BYTES, "RLIMIT_NOFILE": files}
    return [{"type": name, "soft": value, "hard": value} for name, value in wanted.items()]


def around(limits: Limits, io: Bandwidth | None = None) -> Limits:
    """The limits of a sandbox as the machine sees it: with gVisor's kernel in it."""
    pids = DEFAULT_PIDS if limits.pids is None else limits.pids
    memory = None if limits.memory is None else limits.memory + OVERHEAD_BYTES
    return Limits(limits.cpu, memory, pids * PIDS_EACH + PIDS_MORE, io=limits.io or io)


def _process(argv: tuple[str, ...], env: Mapping[str, str], cwd: str, *, tty: bool) -> Json:
    return {
        "terminal": tty, "user": {"uid": 0, "gid": 0}, "args": list(argv), "env": listed(env), "cwd": cwd,
        "capabilities": {}, "noNewPrivileges": True,
    }  # fmt: skip


def _container(plan: SandboxPlan, process: Json, mounts: list[Json], notes: Json, *, read_only: bool) -> Json:
    shm = ["nosuid", "noexec", "nodev", "mode=1777", f"size={SHM_BYTES}"]
    return {
        "ociVersion": "1.1.0",
        "process": process,
        "root": {"path": "", "readonly": read_only},
        "hostname": plan.hostname[:64],
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": QUIET},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "noexec"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": shm},  # noqa: S108 (inside)
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*QUIET, "ro"]},
            *mounts,
        ],
        "annotations": notes,
        "linux": {
            "namespaces": [
                {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
                {"type": "network", "path": "/proc/self/ns/net"},
            ],
        },
    }  # fmt: skip

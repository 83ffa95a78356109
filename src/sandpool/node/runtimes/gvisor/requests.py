"""Builds the input of runsc and of a sandbox's shim: runsc's flags, the OCI config of each container, and requests to the shim. Pure.

Paths are those in the small root of runsc itself (forked/runsc_root.py). That module fills in what is known only there: where the root file
system is mounted, and the ids of a user's name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Bandwidth, ContainerPlan, ExecPlan, Limits, Mount, SandboxPlan, Stdio, User
from sandpool.node.runtimes.gvisor.forked import relay
from sandpool.node.runtimes.gvisor.forked.runsc_root import STATE, VOLUMES
from sandpool.node.runtimes.namespaces.spawn_requests import DEFAULT_FILES, LEAST_FILES, LOCKED_BYTES, PATH, etc_files
from sandpool.node.runtimes.namespaces.spawn_requests import mount_request as mount_order

ROOT = "pod"  # the container that the others join
SHM_BYTES = 64 << 20
OVERHEAD_BYTES = 64 << 20  # memory of gVisor's own kernel, which the machine charges to the pod
DEFAULT_PIDS = 1024
PIDS_EACH, PIDS_MORE = 4, 256  # host threads for each process of a sandbox, and for gVisor's kernel itself
QUIET = ["nosuid", "noexec", "nodev"]

Json = dict[str, Any]


def flags(storage: int | None) -> list[str]:
    """The flags of every runsc command. The network is a namespace with only loopback. Writes go to an unnamed file, as an overlay on the
    read-only root."""
    size = f",size={storage}" if storage else ""
    return [
        f"--root={STATE}", "--platform=systrap", "--network=sandbox", "--ignore-cgroups", "--host-uds=open",
        f"--overlay2=root:dir={STATE}{size}",
    ]  # fmt: skip


def sandbox_config(plan: SandboxPlan, argv: tuple[str, ...], mounts: list[Json]) -> Json:
    """The config of the container that holds the sandbox. Its network namespace is the one that runsc is started in."""
    process = _process(argv, {"PATH": PATH}, "/", tty=False)
    return _container(plan, process, mounts, {"io.kubernetes.cri.container-type": "sandbox"}, read_only=True)


def container_config(plan: ContainerPlan, sandbox: SandboxPlan) -> Json:
    env = {"PATH": PATH, "HOSTNAME": sandbox.hostname, **({"TERM": "xterm"} if plan.tty else {}), **plan.env}
    process = _process(plan.argv, env, plan.cwd or "/", tty=plan.tty)
    process["rlimits"] = rlimits(plan.limits, sandbox.limits)
    joins = {"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": ROOT}
    mounts = [volume_mount(number, each.target, read_only=each.read_only) for number, each in enumerate(plan.mounts)]
    return _container(sandbox, process, mounts, joins, read_only=plan.read_only)


def exec_process(plan: ExecPlan, container: Json) -> Json:
    """The OCI process of an exec, with the identity and limits of the container's main process."""
    env = {**env_dict(container["env"]), **({"TERM": "xterm"} if plan.tty else {}), **plan.env}
    return {
        **container,
        "args": list(plan.argv),
        "env": env_list(env),
        "cwd": plan.cwd or container["cwd"],
        "terminal": plan.tty,
    }


def check_command(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuses arguments and environments that no program can be started with."""
    if not argv:
        raise NodeError("StartError", "there is no command; set the container's command or use an image that has one")
    if any("\0" in each for each in (*argv, *env, *env.values())) or any("=" in name or not name for name in env):
        raise NodeError(
            "StartError", "the command or its environment cannot be passed on: a name or value is not valid"
        )


def volume_mount(number: int, target: str, *, read_only: bool) -> Json:
    options = ["rbind", "ro" if read_only else "rw", "nosuid", "nodev"]
    return {"destination": target, "type": "bind", "source": f"{VOLUMES}/{number}", "options": options}


def env_list(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items()]


def env_dict(env: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in env)}


def rlimits(container: Limits, sandbox: Limits) -> list[Json]:
    files = max(LEAST_FILES, container.files or sandbox.files or DEFAULT_FILES)
    wanted = {"RLIMIT_CORE": 0, "RLIMIT_MEMLOCK": LOCKED_BYTES, "RLIMIT_NOFILE": files}
    return [{"type": name, "soft": value, "hard": value} for name, value in wanted.items()]


def machine_limits(limits: Limits, io: Bandwidth | None = None) -> Limits:
    """The limits of a sandbox on the machine, which include the overhead of gVisor's kernel."""
    pids = DEFAULT_PIDS if limits.pids is None else limits.pids
    memory = None if limits.memory is None else limits.memory + OVERHEAD_BYTES
    return Limits(limits.cpu, memory, pids * PIDS_EACH + PIDS_MORE, io=limits.io or io)


def _process(argv: tuple[str, ...], env: Mapping[str, str], cwd: str, *, tty: bool) -> Json:
    return {
        "terminal": tty, "user": {"uid": 0, "gid": 0}, "args": list(argv), "env": env_list(env), "cwd": cwd,
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


EGRESS = "/egress"


def interpreter() -> tuple[str, list[str]]:
    """The path of our Python interpreter, and the directories that it needs, read-only, in addition to those of every program."""
    program = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    prefix = os.path.realpath(sys.base_prefix)
    return program, [prefix] if Path("/usr") not in (Path(prefix), *Path(prefix).parents) else []


def relay_argv(port: int, program: str, source: str) -> tuple[str, ...]:
    return (program, "-I", "-S", "-c", source, str(port), f"{EGRESS}/socket")


def root_request(plan: SandboxPlan, skeleton: Path) -> Json:
    """The container that the others join. It keeps the sandbox alive and relays egress connections."""
    program, directories = interpreter()
    argv = relay_argv(plan.egress_port, program, Path(relay.__file__).read_text())
    wanted = [
        Mount(EGRESS, plan.directory / "egress", read_only=True),
        *(Mount(directory, Path(directory), read_only=True, within=Path("/")) for directory in directories),
    ]
    mounts = [volume_mount(number, each.target, read_only=each.read_only) for number, each in enumerate(wanted)]
    sources = [mount_order(each, "") for each in wanted]
    described = sandbox_config(plan, argv, mounts)
    described["process"]["mounted"] = True
    return _root(described, plan, skeleton, (), host=True, mounts=sources, user="", groups=())


def shim_request(plan: SandboxPlan, runsc: Path, ids: tuple[int, int, int], skeleton: Path, *, ranged: bool) -> Json:
    return {
        "do": "keep", "directory": str(plan.directory), "runsc": str(runsc), "ids": ids, "ranged": ranged,
        "flags": flags(plan.limits.storage), "root": root_request(plan, skeleton),
    }  # fmt: skip


def start_request(
    plan: ContainerPlan, stdio: Stdio, sandbox: SandboxPlan, skeleton: Path, memory_volumes: Mapping[str, str]
) -> Json:
    described = container_config(plan, sandbox)
    described["process"]["mounted"] = bool(plan.mounts)
    mounts = [mount_order(each, memory_volumes.get(each.volume, "")) for each in plan.mounts]
    return {
        "do": "start",
        "tty": plan.tty,
        "stdio": stdio_given(stdio),
        "root": _root(
            described, sandbox, skeleton, [str(layer) for layer in plan.rootfs.layers],
            host=plan.rootfs.host, mounts=mounts, user=plan.user, groups=plan.groups,
        ),
    }  # fmt: skip


def memory_volumes(plan: ContainerPlan, named: Mapping[str, str], base: int, *, ranged: bool) -> list[Json]:
    """The memory volumes that the container mounts."""
    found: dict[str, Json] = {}
    for each in plan.mounts:
        if each.source is None and each.volume not in found:
            owner = each.owner or User()
            ids = (base + owner.uid, base + owner.gid) if ranged else (0, 0)
            found[each.volume] = {"name": named[each.volume], "size": each.size, "owner": ids}
    return list(found.values())


def stdio_given(stdio: Stdio) -> list[bool]:
    return [file is not None for file in (stdio.stdin, stdio.stdout, stdio.stderr)]


def stdio_files(stdio: Stdio, *, tty: bool) -> list[int]:
    return [] if tty else [file for file in (stdio.stdin, stdio.stdout, stdio.stderr) if file is not None]


def _root(
    described: Json, plan: SandboxPlan, skeleton: Path, layers: Sequence[str],
    *, host: bool, mounts: list[Json], user: str, groups: Sequence[int],
) -> Json:  # fmt: skip
    return {
        "layers": layers, "host": str(skeleton) if host else None, "etc": etc_files(plan.hostname), "mounts": mounts,
        "user": user, "groups": groups, "files": {"config.json": described},
    }  # fmt: skip

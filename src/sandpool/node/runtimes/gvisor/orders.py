"""From plans to what a keeper is told. Pure."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandpool.node.runtimes.contract import ContainerPlan, Mount, SandboxPlan, Stdio, User
from sandpool.node.runtimes.gvisor import config
from sandpool.node.runtimes.gvisor.config import Json
from sandpool.node.runtimes.gvisor.forked import relay
from sandpool.node.runtimes.namespaces.orders import etc_files
from sandpool.node.runtimes.namespaces.orders import mount as mount_order

EGRESS = "/egress"


def python() -> tuple[str, list[str]]:
    """The interpreter that this one is, and the folders, read-only, that it needs beside those of every program."""
    program = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    prefix = os.path.realpath(sys.base_prefix)
    return program, [prefix] if Path("/usr") not in (Path(prefix), *Path(prefix).parents) else []


def relay_argv(port: int, program: str, source: str) -> tuple[str, ...]:
    return (program, "-I", "-S", "-c", source, str(port), f"{EGRESS}/socket")


def root(plan: SandboxPlan, skeleton: Path) -> Json:
    """The container that the others join: it keeps the sandbox, and carries what goes out."""
    program, folders = python()
    argv = relay_argv(plan.egress_port, program, Path(relay.__file__).read_text())
    wanted = [
        Mount(EGRESS, plan.folder / "egress", read_only=True),
        *(Mount(folder, Path(folder), read_only=True, within=Path("/")) for folder in folders),
    ]
    mounts = [config.volume(number, each.target, read_only=each.read_only) for number, each in enumerate(wanted)]
    sources = [mount_order(each, "") for each in wanted]
    described = config.sandbox_config(plan, argv, mounts)
    described["process"]["mounted"] = True
    return _root(described, plan, skeleton, (), host=True, mounts=sources, user="", groups=())


def keep(plan: SandboxPlan, runsc: Path, ids: tuple[int, int, int], skeleton: Path, *, ranged: bool) -> Json:
    return {
        "do": "keep", "folder": str(plan.folder), "runsc": str(runsc), "ids": ids, "ranged": ranged,
        "flags": config.flags(plan.limits.storage), "root": root(plan, skeleton),
    }  # fmt: skip


def start(plan: ContainerPlan, stdio: Stdio, sandbox: SandboxPlan, skeleton: Path, volumes: Mapping[str, str]) -> Json:
    described = config.container_config(plan, sandbox)
    described["process"]["mounted"] = bool(plan.mounts)
    mounts = [mount_order(each, volumes.get(each.volume, "")) for each in plan.mounts]
    return {
        "do": "start",
        "tty": plan.tty,
        "stdio": given(stdio),
        "root": _root(
            described, sandbox, skeleton, [str(layer) for layer in plan.rootfs.layers],
            host=plan.rootfs.host, mounts=mounts, user=plan.user, groups=plan.groups,
        ),
    }  # fmt: skip


def volumes(plan: ContainerPlan, named: Mapping[str, str], base: int, *, ranged: bool) -> list[Json]:
    """Those in memory that the container wants."""
    found: dict[str, Json] = {}
    for each in plan.mounts:
        if each.source is None and each.volume not in found:
            owner = each.owner or User()
            ids = (base + owner.uid, base + owner.gid) if ranged else (0, 0)
            found[each.volume] = {"name": named[each.volume], "size": each.size, "owner": ids}
    return list(found.values())


def given(stdio: Stdio) -> list[bool]:
    return [file is not None for file in (stdio.stdin, stdio.stdout, stdio.stderr)]


def files(stdio: Stdio, *, tty: bool) -> list[int]:
    return [] if tty else [file for file in (stdio.stdin, stdio.stdout, stdio.stderr) if file is not None]


def _root(
    described: Json, plan: SandboxPlan, skeleton: Path, layers: Sequence[str],
    *, host: bool, mounts: list[Json], user: str, groups: Sequence[int],
) -> Json:  # fmt: skip
    return {
        "layers": layers, "host": str(skeleton) if host else None, "etc": etc_files(plan.hostname), "mounts": mounts,
        "user": user, "groups": groups, "files": {"config.json": described},
    }  # fmt: skip

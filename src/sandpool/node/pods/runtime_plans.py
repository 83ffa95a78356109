"""Translates a pod's spec, its image and its volumes into the plans that a runtime carries out, commands and environment included. Pure."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from sandpool.base.errors import NodeError
from sandpool.node.backend import ADDRESS, ContainerSpec, PodSecurityContext, VolumeMount, Workload
from sandpool.node.images.image import Image, ImageConfig
from sandpool.node.network.contract import NetworkRequest, Port
from sandpool.node.pods import security
from sandpool.node.pods.context import PodsOptions
from sandpool.node.pods.limits import container_limits, pod_limits
from sandpool.node.runtimes.contract import ContainerPlan, Mount, SandboxPlan, User
from sandpool.node.volumes.spec import Volume

_CONFIG = "CreateContainerConfigError"


def sandbox_plan(workload: Workload, directory: Path, options: PodsOptions) -> SandboxPlan:
    return SandboxPlan(
        workload.uid,
        hostname(workload.spec.hostname, workload.key.name),
        directory,
        pod_limits(workload.spec, options.pids),
        options.egress_port,
        workload.key.namespace,
    )


def wanted(workload: Workload) -> NetworkRequest:
    ports = {
        (port.container_port, port.protocol): Port(port.container_port, port.name, port.protocol)
        for container in (*workload.spec.init_containers, *workload.spec.containers)
        for port in container.ports
    }
    address = workload.was.address if workload.was is not None else ""
    return NetworkRequest(
        workload.uid, workload.key.namespace, workload.key.name, workload.labels, tuple(ports.values()), address
    )


def container_plan(
    workload: Workload,
    spec: ContainerSpec,
    image: Image,
    volumes: Mapping[str, Volume],
    *,
    address: str,
    message: Path | None,
    proxy_port: int | None,
    attempt: int,
) -> ContainerPlan:
    """Raises NodeError if the spec cannot be satisfied."""
    pod, config = workload.spec.security_context, image.config
    env = {name: value.replace(ADDRESS, address) for name, value in workload.env.get(spec.name, {}).items()}
    host = hostname(workload.spec.hostname, workload.key.name)
    return ContainerPlan(
        spec.name,
        argv(spec, config, env),
        image.rootfs,
        env=environment(spec, config, env, host, proxy_port),
        cwd=spec.working_dir or config.working_dir or "/",
        user=security.user(spec, pod, config),
        groups=security.groups(pod),
        read_only=spec.security_context.read_only_root_filesystem,
        mounts=mounts(spec, volumes, pod, message),
        limits=container_limits(spec),
        tty=spec.tty,
        attempt=attempt,
        served=spec in workload.spec.containers[:1],  # the router connects to boxd in the first container
    )


def container_id(runtime: str, workload: Workload, container: str, attempt: int) -> str:
    """The containerID of one run; each run has its own."""
    text = f"{workload.uid}/{container}/{attempt}"
    return f"{runtime}://{hashlib.sha256(text.encode()).hexdigest()}"


def mounts(
    spec: ContainerSpec, volumes: Mapping[str, Volume], pod: PodSecurityContext, message: Path | None
) -> tuple[Mount, ...]:
    """The container's volumes and the file of its termination message, by depth: a mount below another is not hidden by it.
    The runtime opens what is named here."""
    found = [_mount(spec, wanted, volumes, pod) for wanted in spec.volume_mounts]
    if message is not None:
        found.append(Mount(spec.termination_message_path, message, required=False))
    return tuple(sorted(found, key=lambda mount: len(PurePosixPath(mount.target).parts)))


def _mount(spec: ContainerSpec, wanted: VolumeMount, volumes: Mapping[str, Volume], pod: PodSecurityContext) -> Mount:
    where = f"container {spec.name}: volumeMounts {wanted.name!r}"
    volume = volumes.get(wanted.name)
    if volume is None:
        raise NodeError(_CONFIG, f"{where}: the pod has no such volume; add it to spec.volumes")
    target = "/" + wanted.mount_path.lstrip("/")
    if ".." in target.split("/") or os.path.normpath(target) == "/":
        raise NodeError(_CONFIG, f"{where}: mountPath {wanted.mount_path!r} must be a path below the root; change it")
    read_only = wanted.read_only or volume.read_only
    if volume.path is None:
        if wanted.sub_path:
            raise NodeError(_CONFIG, f"{where}: subPath cannot be used with a volume in memory; mount it whole")
        return Mount(target, volume=wanted.name, size=volume.tmpfs_size, read_only=read_only, owner=_owner(spec, pod))
    return Mount(
        target, volume.path, wanted.name, read_only=read_only, owner=_owner(spec, pod), within=volume.within,
        sub_path=_sub_path(wanted.sub_path, where), make=not volume.read_only,
    )  # fmt: skip


def _sub_path(sub: str, where: str) -> str:
    """Checks only the text: where the path leads is checked when the runtime opens it."""
    if sub.startswith("/") or ".." in sub.split("/") or "\0" in sub:
        raise NodeError(_CONFIG, f"{where}: subPath {sub!r} must be relative and without '..'; change it")
    return "" if os.path.normpath(sub) == "." else sub


def _owner(spec: ContainerSpec, pod: PodSecurityContext) -> User | None:
    uid = spec.security_context.run_as_user if spec.security_context.run_as_user is not None else pod.run_as_user
    if uid is None and pod.fs_group is None:
        return None
    return User(uid or 0, pod.fs_group or 0)


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_HERE = "localhost,127.0.0.1,::1"
MOST = 2 << 20
"""Characters of a command with its arguments; the kernel's own limit is about the same."""


class TooLarge(Exception):
    """The expanded text is longer than a command may be."""


def expand(text: str, env: Mapping[str, str], most: int = MOST) -> str:
    """Expands `$(NAME)` to its value and `$$` to a dollar sign; unknown names stay as they are. Raises TooLarge before the result exceeds
    `most` characters: a short text with many references could expand to more than memory holds."""
    left = most - len(text)

    def value(found: re.Match[str]) -> str:
        nonlocal left
        name = found[1]
        made = "$" if name is None else env.get(name, found[0])
        left -= len(made) - len(found[0])
        if left < 0:
            raise TooLarge
        return made

    return _REFERENCE.sub(value, text)


def argv(spec: ContainerSpec, config: ImageConfig, env: Mapping[str, str]) -> tuple[str, ...]:
    """`command` replaces the image's entrypoint and drops its cmd; `args` alone replaces only the cmd."""
    if spec.command:
        words = (*spec.command, *spec.args)
    elif spec.args:
        return (*config.entrypoint, *_expanded(spec, spec.args, env)) or _nothing(spec)
    else:
        return (*config.entrypoint, *config.cmd) or _nothing(spec)
    return _expanded(spec, words, env)


def _expanded(spec: ContainerSpec, words: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    made: list[str] = []
    left = MOST
    try:
        for word in words:
            made.append(expand(word, env, left))
            left -= len(made[-1])
    except TooLarge:
        raise NodeError(
            "CreateContainerError",
            f"container {spec.name}: command and args take more than {MOST} characters; put what is large into a file",
        ) from None
    return tuple(made)


def _nothing(spec: ContainerSpec) -> tuple[str, ...]:
    raise NodeError(
        "CreateContainerError",
        f"container {spec.name}: no command is specified, and the image {spec.image} has none; set command",
    )


def environment(
    spec: ContainerSpec, config: ImageConfig, env: Mapping[str, str], hostname: str, proxy_port: int | None
) -> dict[str, str]:
    """The environment: the spec overrides the image, and the image overrides the defaults of every container."""
    made = {"PATH": PATH, "HOSTNAME": hostname}
    if spec.tty:
        made["TERM"] = "xterm"
    if proxy_port is not None:
        made |= proxies(proxy_port)
    return {**made, **config.env, "HOSTNAME": hostname, **env}


def proxies(port: int) -> dict[str, str]:
    """Proxy variables in both spellings, because programs disagree about which one they read."""
    address = f"http://127.0.0.1:{port}"
    upper = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": _HERE}
    return {**upper, **{name.lower(): value for name, value in upper.items()}}


def hostname(wanted: str, pod: str) -> str:
    """The pod's hostname: its name cut to 63 characters, the limit of DNS and of the kernel."""
    return wanted or pod[:63].rstrip("-.")

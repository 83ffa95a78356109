"""From a pod's spec, an image and the volumes to what a runtime is told. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from sandpool.node.backend import ADDRESS, ContainerSpec, Workload
from sandpool.node.images.image import Image
from sandpool.node.network.port import Port, Wanted
from sandpool.node.pods import security, variables
from sandpool.node.pods.limits import container_limits, pod_limits
from sandpool.node.pods.mounts import mounts
from sandpool.node.pods.options import PodsOptions
from sandpool.node.runtimes.contract import ContainerPlan, SandboxPlan
from sandpool.node.volumes.spec import Volume


def sandbox_plan(workload: Workload, folder: Path, options: PodsOptions) -> SandboxPlan:
    return SandboxPlan(
        workload.uid,
        variables.hostname(workload.spec.hostname, workload.key.name),
        folder,
        pod_limits(workload.spec, options.pids),
        options.egress_port,
        workload.key.namespace,
    )


def wanted(workload: Workload) -> Wanted:
    ports = {
        (port.container_port, port.protocol): Port(port.container_port, port.name, port.protocol)
        for container in (*workload.spec.init_containers, *workload.spec.containers)
        for port in container.ports
    }
    address = workload.was.address if workload.was is not None else ""
    return Wanted(
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
    """NodeError if the spec asks for what cannot be had."""
    pod, config = workload.spec.security_context, image.config
    env = {name: value.replace(ADDRESS, address) for name, value in workload.env.get(spec.name, {}).items()}
    host = variables.hostname(workload.spec.hostname, workload.key.name)
    return ContainerPlan(
        spec.name,
        variables.argv(spec, config, env),
        image.rootfs,
        env=variables.environment(spec, config, env, host, proxy_port),
        cwd=spec.working_dir or config.working_dir or "/",
        user=security.user(spec, pod, config),
        groups=security.groups(pod),
        read_only=spec.security_context.read_only_root_filesystem,
        mounts=mounts(spec, volumes, pod, message),
        limits=container_limits(spec),
        tty=spec.tty,
        attempt=attempt,
        served=spec in workload.spec.containers[:1],  # the one that routers connect to
    )


def container_id(runtime: str, workload: Workload, container: str, attempt: int) -> str:
    """The same for the same run, another one for the next."""
    text = f"{workload.uid}/{container}/{attempt}"
    return f"{runtime}://{hashlib.sha256(text.encode()).hexdigest()}"

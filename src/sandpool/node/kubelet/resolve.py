"""Builds the workload for the backend from a pod and the objects that it refers to. Pure.

Raises Unresolved with Kubernetes' reasons. The result holds secrets; no message contains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from sandpool.node.backend import ADDRESS, Workload
from sandpool.node.images.credentials import KEYS, from_secret
from sandpool.node.images.image import Credential
from sandpool.node.kubelet.content_budget import files_size, words_size
from sandpool.node.kubelet.contents import Contents
from sandpool.node.kubelet.downward import Fields, NodeInfo
from sandpool.node.kubelet.environment import Allowance, TooLarge, environment, expand
from sandpool.node.kubelet.files import volume_specs
from sandpool.node.kubelet.pods import HttpGetAction, NodeContainer, NodePod, TcpSocketAction
from sandpool.node.kubelet.references import CONFIG_ERROR, Found, Unresolved

_SELF = ("", "localhost", "127.0.0.1", "::1")
MOST_LOGINS = 256
"""Maximum number of registry logins of a pod. Further ones are ignored, and the pod gets a warning Event."""
MOST_LOGIN_BYTES = 4 << 20
"""Maximum bytes, as stored, of the Secrets that they are read from."""
_LONGEST_PATH = 4096
_TOO_MANY = f"only the first {MOST_LOGINS} logins of a pod are used; name Secrets with fewer"
_TOO_LARGE = f"those of a pod may have {MOST_LOGIN_BYTES} bytes together"


@dataclass(frozen=True, slots=True)
class Resolved:
    workload: Workload
    warnings: tuple[str, ...] = ()  # problems that do not prevent the start
    files: int = 0  # bytes of its files
    words: int = 0  # bytes of its variables and logins


def resolve(pod: NodePod, workload: Workload, found: Found, node_info: NodeInfo) -> Resolved:
    """Completes the workload with environments, volumes and credentials."""
    env: dict[str, dict[str, str]] = {}
    containers = pod.spec.all_containers
    for container in containers:
        if container.probed or container.pre_stop is not None:
            _check(container)
    contents, fields, allowance = Contents(found), Fields(pod, node_info), Allowance()
    volumes = volume_specs(pod, contents, fields) if pod.spec.volumes else ()
    for container in containers:
        env[container.name] = environment(pod, container, contents, fields, allowance)
    credentials, warnings = _credentials(pod, contents) if pod.spec.image_pull_secrets else ((), ())
    full = replace(
        workload,
        spec=msgspec.structs.replace(
            workload.spec,
            init_containers=tuple([_expanded(one, env[one.name]) for one in pod.spec.init_containers]),
            containers=tuple([_expanded(one, env[one.name]) for one in pod.spec.containers]),
        ),
        labels=pod.metadata.labels,
        env=env,
        volumes=volumes,
        credentials=credentials,
    )
    return Resolved(full, warnings, files_size(volumes), words_size(env, credentials))


def _check(container: NodeContainer) -> None:
    """Refuses probes and hooks that cannot be run here."""
    for field, handler in container.handlers:
        if handler.action is None:
            kind = "grpc" if handler.grpc is not None else "its kind"
            raise _refusal(container, f"{field}: {kind} is not supported; use exec, httpGet or tcpSocket")
        if isinstance(handler.action, HttpGetAction | TcpSocketAction) and handler.action.host not in _SELF:
            raise _refusal(
                container, f"{field}: host {handler.action.host!r} is refused: only the pod itself can be probed"
            )


def _refusal(container: NodeContainer, why: str) -> Unresolved:
    return Unresolved(CONFIG_ERROR, f"container {container.name}: {why}", container.name)


def _expanded(container: NodeContainer, env: Mapping[str, str]) -> NodeContainer:
    """The container with each subPathExpr expanded to a subPath."""
    if not container.volume_mounts or not any(mount.sub_path_expr for mount in container.volume_mounts):
        return container
    mounts = []
    for mount in container.volume_mounts:
        path = _sub_path(mount.sub_path_expr, env) if mount.sub_path_expr else mount.sub_path
        if mount.sub_path_expr and ("$(" in path or path.startswith("/") or ".." in path.split("/") or ADDRESS in path):
            raise _refusal(
                container,
                f"subPathExpr {mount.sub_path_expr!r} of mount {mount.mount_path} is not a path inside the volume",
            )
        mounts.append(msgspec.structs.replace(mount, sub_path=path, sub_path_expr=""))
    return msgspec.structs.replace(container, volume_mounts=tuple(mounts))


def _sub_path(expression: str, env: Mapping[str, str]) -> str:
    """Expands the expression. If the result is too long, returns it unexpanded, which is not a valid path."""
    try:
        path = expand(expression, env)
    except TooLarge:
        return f"$({expression})"
    return path if len(path) <= _LONGEST_PATH else f"$({expression})"


def _credentials(pod: NodePod, contents: Contents) -> tuple[tuple[Credential, ...], tuple[str, ...]]:
    """Reads the registry logins. An invalid one does not prevent the start: the image may be present already, or be public."""
    logins: list[Credential] = []
    warnings: list[str] = []
    left = MOST_LOGIN_BYTES
    for name in dict.fromkeys(ref.name for ref in pod.spec.image_pull_secrets):
        secret = contents.found.secrets.get(name)
        if secret is None:
            warnings.append(f"imagePullSecrets: secret {name!r} not found in namespace {pod.metadata.namespace}")
            continue
        left -= sum(map(len, secret.data.values()))
        if left < 0:
            return tuple(logins), (
                *warnings,
                f"imagePullSecrets: from secret {name!r} on they are not read: {_TOO_LARGE}",
            )
        try:
            read = {key: contents.secret(name, key) for key in KEYS if key in secret.data}
            logins += from_secret(read, MOST_LOGINS + 1 - len(logins))
        except (ValueError, Unresolved) as error:
            warnings.append(f"imagePullSecrets: secret {name!r} cannot be read: {error}")
        if len(logins) > MOST_LOGINS:
            return tuple(logins[:MOST_LOGINS]), (
                *warnings,
                f"imagePullSecrets: secret {name!r} and later ones: {_TOO_MANY}",
            )
    return tuple(logins), tuple(warnings)

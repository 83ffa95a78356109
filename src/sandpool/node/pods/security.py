"""Which user a container runs as, and what is refused. Pure; a refusal is a NodeError that names the field and what to do.

Nothing is ever weakened: a request that cannot be met keeps the container from starting.
"""

from __future__ import annotations

from sandpool.base.errors import NodeError
from sandpool.node.backend import BackendError, ContainerSpec, PodSecurityContext, WorkloadSpec
from sandpool.node.images.image import ImageConfig

REFUSED = "SecurityContextRefused"
_CONFIG = "CreateContainerConfigError"
# The default capabilities of containers. A sandbox may grant fewer, but requesting them is not an error.
_ORDINARY = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "NET_RAW",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)


def check_pod(spec: WorkloadSpec) -> None:
    for field, wanted in (("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)):
        if wanted:
            raise BackendError(
                REFUSED, f"spec.{field}: sandboxes never share namespaces of the machine; remove the field"
            )


def check_container(spec: ContainerSpec) -> None:
    context = spec.security_context
    if context.privileged:
        raise NodeError(
            _CONFIG, f"container {spec.name}: securityContext.privileged is refused in a sandbox; remove the field"
        )
    more = sorted({name.upper().removeprefix("CAP_") for name in context.capabilities.add} - _ORDINARY)
    if more:
        raise NodeError(
            _CONFIG,
            f"container {spec.name}: securityContext.capabilities.add: {', '.join(more)} cannot be granted to a sandbox; "
            "remove them",
        )


def user(spec: ContainerSpec, pod: PodSecurityContext, config: ImageConfig) -> str:
    """As in an image: name or number, with a group after a colon. The container's field overrides the pod's."""
    context = spec.security_context
    uid = context.run_as_user if context.run_as_user is not None else pod.run_as_user
    gid = context.run_as_group if context.run_as_group is not None else pod.run_as_group
    non_root = context.run_as_non_root if context.run_as_non_root is not None else pod.run_as_non_root
    name, _, group = config.user.partition(":")
    name, group = (name, group) if uid is None else (str(uid), "")
    if non_root:
        _insist_on_non_root(spec.name, name)
    group = group if gid is None else str(gid)
    return f"{name or '0'}:{group}" if group else name


def _insist_on_non_root(container: str, name: str) -> None:
    if name in ("", "root") or (name.isdigit() and int(name) == 0):
        raise NodeError(
            _CONFIG,
            f"container {container}: runAsNonRoot is set and the image would run as root; set securityContext.runAsUser",
        )
    if not name.isdigit():
        raise NodeError(
            _CONFIG,
            f"container {container}: runAsNonRoot is set and the image's user {name!r} is not a number, so it cannot be verified; "
            "set securityContext.runAsUser",
        )


def groups(pod: PodSecurityContext) -> tuple[int, ...]:
    more = () if pod.fs_group is None else (pod.fs_group,)
    return tuple(dict.fromkeys((*more, *pod.supplemental_groups)))

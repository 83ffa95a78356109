"""A pod spec with the restrictions that a careful author would have written: the runtime's seccomp profile for the pod, no
container that can gain privileges, and limits for each.

Only what is absent is filled in, and nothing that would make a valid spec invalid: a container that is privileged or asks
for CAP_SYS_ADMIN cannot be kept from gaining privileges, and pods for Windows are left as they are.
"""

from __future__ import annotations

from typing import Any

from sandpool.model.container_defaults import NONE, ContainerDefaults, limited
from sandpool.model.documents import Json

SECCOMP = "seccompProfile"
ESCALATION = "allowPrivilegeEscalation"
_CONTAINERS = ("initContainers", "containers")
_ADMINISTRATION = frozenset({"SYS_ADMIN", "ALL"})


def hardened(spec: dict[str, Any], defaults: ContainerDefaults = NONE) -> dict[str, Any]:
    """The very same spec if there is nothing to add; else a copy of what changes."""
    return spec if _for_windows(spec) else limited(_restricted(spec), defaults)


def _restricted(spec: dict[str, Any]) -> dict[str, Any]:
    added: dict[str, Any] = {}
    if _absent(spec, SECCOMP):
        added["securityContext"] = {**(spec.get("securityContext") or {}), SECCOMP: {"type": "RuntimeDefault"}}
    for field in _CONTAINERS:
        before = spec.get(field)
        if type(before) is list and (after := [_confined(one) for one in before]) != before:
            added[field] = after
    return {**spec, **added} if added else spec


def _confined(container: Json) -> Json:
    if not _absent(container, ESCALATION) or _needs_privileges(container):
        return container
    return {**container, "securityContext": {**(container.get("securityContext") or {}), ESCALATION: False}}


def _absent(part: Json, field: str) -> bool:
    """Whether the field of a pod's or a container's securityContext is not set. What is no such context is left alone."""
    if type(part) is not dict:
        return False
    context = part.get("securityContext")
    return context is None or (type(context) is dict and context.get(field) is None)


def _needs_privileges(container: dict[str, Any]) -> bool:
    """Whether a server would refuse, or a runtime override, that the container cannot gain privileges."""
    context = container.get("securityContext") or {}
    capabilities = context.get("capabilities") or {}
    asked = {str(name).upper().removeprefix("CAP_") for name in capabilities.get("add") or ()}
    return bool(context.get("privileged")) or not asked.isdisjoint(_ADMINISTRATION)


def _for_windows(spec: dict[str, Any]) -> bool:
    """As the pod says itself, or as the nodes do that it selects."""
    system, selector = spec.get("os"), spec.get("nodeSelector")
    says = system.get("name") if type(system) is dict else None
    selects = selector.get("kubernetes.io/os") if type(selector) is dict else None
    return "windows" in (says, selects)

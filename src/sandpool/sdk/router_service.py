"""Where a cluster's router is: which of the pods behind its Service, and which of its ports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandpool.wire.router_service import PORT

Object = Mapping[str, Any]


def selector_of(service: Object) -> str:
    """As a label selector. A service without one selects nothing, not everything."""
    pairs = (service.get("spec") or {}).get("selector") or {"sandpool.dev/none": "none"}
    return ",".join(f"{key}={value}" for key, value in sorted(pairs.items()))


def chosen_pod(service: Object, pods: Iterable[Object]) -> tuple[str, int] | None:
    """A pod that serves, and the port there; None if none does."""
    ports = (service.get("spec") or {}).get("ports") or ()
    wanted = next((port for port in ports if port.get("port") == PORT), ports[0] if ports else {"port": PORT})
    target = wanted.get("targetPort") or wanted.get("port", PORT)
    for pod in pods:
        number = _number(pod, target)
        if _serves(pod) and number is not None:
            return str(pod["metadata"]["name"]), number
    return None


def _serves(pod: Object) -> bool:
    status = pod.get("status") or {}
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    return status.get("phase") == "Running" and ready and not pod["metadata"].get("deletionTimestamp")


def _number(pod: Object, target: int | str) -> int | None:
    if isinstance(target, int):
        return target
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == target:
                return int(port["containerPort"])
    return None

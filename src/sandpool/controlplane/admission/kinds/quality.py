"""The quality-of-service class of a pod, which Kubernetes derives from its resources."""

from __future__ import annotations

from typing import Any

from sandpool.model.quantities import QuantityError, parse

_COUNTED = ("cpu", "memory")


def quality(spec: dict[str, Any]) -> str:
    """Guaranteed: every container limits cpu and memory and asks for as much. BestEffort: none asks for anything."""
    guaranteed, anything = True, False
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or []:
            resources = container.get("resources") or {}
            limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
            anything = anything or any(_some(limits, name) or _some(requests, name) for name in _COUNTED)
            guaranteed = guaranteed and all(_same(limits, requests, name) for name in _COUNTED)
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _some(amounts: dict[str, Any], name: str) -> bool:
    return name in amounts and _nanos(amounts[name]) > 0


def _same(limits: dict[str, Any], requests: dict[str, Any], name: str) -> bool:
    return _some(limits, name) and _nanos(limits[name]) == _nanos(requests.get(name, limits[name]))


def _nanos(amount: Any) -> int:
    try:
        return parse(amount).nanos
    except QuantityError:
        return 0  # refused elsewhere

"""Decides whether a pod may be placed on this node, and which runtime it gets. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sandpool.node.kubelet.pods import NodePod

DISK_PRESSURE = "DiskPressure"
"""The condition of the node, and the reason of containers that wait for disk space."""


@dataclass(frozen=True, slots=True)
class Runtimes:
    """The RuntimeClasses of this node and which handlers work."""

    handlers: Mapping[str, str] = field(default_factory=dict)  # of the RuntimeClass objects, by name
    absent: Mapping[str, str] = field(default_factory=dict)  # handlers that do not work here, and why
    present: Collection[str] = ()  # handlers that work

    def why_not(self, name: str) -> str | None:
        handler = self.handlers.get(name, name)
        choice = f"choose one of {', '.join(sorted(self.present)) or 'none'}"
        if handler in self.present:
            return None
        if handler in self.absent:
            return f"runtimeClassName {name}: {self.absent[handler]}"
        if name in self.handlers:
            return f"runtimeClassName {name}: no runtime is called {handler!r} here, which is its handler; {choice}"
        return f'RuntimeClass "{name}" not found; create it, or {choice}'


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts about the node that placing depends on."""

    name: str
    labels: Mapping[str, str]
    closed: bool = False  # cordoned
    runtimes: Runtimes | None = None  # None: any runtime is accepted
    pressure: str = ""  # why pods are not started at the moment; empty: they are


def why_not_here(pod: NodePod, node: NodeFacts) -> tuple[str, str] | None:
    """Reason and message if the pod may not run on this node, which is the only one; else None."""
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    if gates:
        return "SchedulingGated", f"Scheduling is blocked due to non-empty scheduling gates: {', '.join(gates)}"
    missing = [f"{name}={value}" for name, value in pod.spec.node_selector.items() if node.labels.get(name) != value]
    if missing:
        return (
            "Unschedulable",
            f"node {node.name} lacks what spec.nodeSelector asks for ({', '.join(missing)}); label the node or change it",
        )
    refusal = why_not_run(pod, node)
    if refusal is not None:
        return "Unschedulable", refusal
    if node.closed:
        return "Unschedulable", f"node {node.name} is cordoned; run kubectl uncordon {node.name}"
    return None


def why_not_run(pod: NodePod, node: NodeFacts | None) -> str | None:
    """Why the runtime that the pod names is not available. The pod never gets a weaker one instead."""
    name = pod.spec.runtime_class_name
    if not name or node is None or node.runtimes is None:
        return None
    return node.runtimes.why_not(name)


def handler_of(pod: NodePod, node: NodeFacts | None) -> str | None:
    """The handler of the pod's RuntimeClass."""
    name = pod.spec.runtime_class_name
    if not name or node is None or node.runtimes is None:
        return name
    return node.runtimes.handlers.get(name, name)

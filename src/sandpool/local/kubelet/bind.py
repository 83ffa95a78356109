"""Whether a pod may be placed on this node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandpool.local.kubelet.pods import NodePod


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What placing depends on."""

    name: str
    labels: Mapping[str, str]
    closed: bool = False  # cordoned


def why_not_here(pod: NodePod, node: NodeFacts) -> tuple[str, str] | None:
    """Reason and message if the pod may not run on the only node there is."""
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    if gates:
        return "SchedulingGated", f"Scheduling is blocked due to non-empty scheduling gates: {', '.join(gates)}"
    missing = [f"{name}={value}" for name, value in pod.spec.node_selector.items() if node.labels.get(name) != value]
    if missing:
        return (
            "Unschedulable",
            f"node {node.name} lacks what spec.nodeSelector asks for ({', '.join(missing)}); label the node or change it",
        )
    if node.closed:
        return "Unschedulable", f"node {node.name} is cordoned; run kubectl uncordon {node.name}"
    return None

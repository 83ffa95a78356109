"""PodMetrics and NodeMetrics: from pods, nodes and measurements to documents. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from sandpool.model import times
from sandpool.model.metadata import Metadata, Model
from sandpool.model.quantities import Family, Quantity
from sandpool.model.resource import Resource
from sandpool.model.usage import NODE_METRICS, POD_METRICS, Used


class _Named(Model, frozen=True):
    name: str = ""


class _Spec(Model, frozen=True):
    node_name: str = ""
    containers: tuple[_Named, ...] = ()


class Seen(Model, frozen=True):
    """A pod or a node, as far as it matters here."""

    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()


_DECODER: Final = msgspec.json.Decoder(Seen)


def seen(value: bytes) -> Seen:
    return _DECODER.decode(value)


def of_pod(pod: Seen, used: Used) -> bytes:
    """A pod is measured as a whole: the numbers stand at its first container, and zeros at the others."""
    nothing = Used(0.0, 0, used.at, used.window)
    containers = [
        {"name": container.name, "usage": _usage(nothing if index else used)}
        for index, container in enumerate(pod.spec.containers)
    ]
    return _document(POD_METRICS, pod, used.at, used.window, containers=containers)


def of_node(node: Seen, pods: Iterable[Used], now: datetime) -> bytes:
    """A node uses what its pods use."""
    found = list(pods)
    total = Used(
        sum(one.cores for one in found),
        sum(one.memory for one in found),
        max((one.at for one in found), default=now),
        max((one.window for one in found), default=0.0),
    )
    return _document(NODE_METRICS, node, total.at, total.window, usage=_usage(total))


def _document(resource: Resource[Any], about: Seen, at: datetime, window: float, **more: Any) -> bytes:
    meta = about.metadata
    metadata: dict[str, Any] = {"name": meta.name, "creationTimestamp": times.seconds(at)}
    if meta.namespace:
        metadata["namespace"] = meta.namespace
    if meta.labels:
        metadata["labels"] = meta.labels
    return msgspec.json.encode(
        {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "timestamp": times.seconds(at),
            "window": f"{window:.3f}s",
            **more,
        }
    )


def _usage(used: Used) -> dict[str, str]:
    return {
        "cpu": str(Quantity(round(used.cores * 10**9))),
        "memory": str(Quantity(used.memory * 10**9, Family.BINARY)),
    }

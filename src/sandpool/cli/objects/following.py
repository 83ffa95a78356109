"""One object as it changes: its state now, then every change, over dropped connections and lost places, until a deadline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sandpool.cli.cluster import Cluster
from sandpool.cli.kinds import Kind
from sandpool.kube.errors import Gone

Json = dict[str, Any]


def states(cluster: Cluster, kind: Kind, namespace: str, name: str, timeout: float | None) -> Iterator[Json | None]:
    """None while it is not there. Looks at least once; ends when the time is over."""
    until = cluster.deadline(timeout)
    while True:
        found = cluster.list(kind, namespace, fields=f"metadata.name={name}")
        yield found["items"][0] if found["items"] else None
        try:
            for event in cluster.watch(
                kind, namespace, since=found["metadata"]["resourceVersion"], fields=f"metadata.name={name}", until=until
            ):
                if event["type"] == "DELETED":
                    yield None
                elif event["type"] in ("ADDED", "MODIFIED"):
                    yield event["object"]
        except Gone:
            pass  # our place in the log is no more: look again
        if until.left == 0:
            return

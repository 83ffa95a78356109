"""Finds the sandbox that a name on the command line means (a claim's, or `sandbox/NAME`), and opens a connection to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandpool.cli.cluster import Cluster
from sandpool.cli.exits import FAILED, USAGE, Exit
from sandpool.cli.kinds import split, word
from sandpool.cli.objects.advice import advice
from sandpool.model import labels
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.sdk._sync.data_plane import DataPlane


def plane_of(cluster: Cluster, name: str) -> DataPlane:
    """The sandbox of a claim, or of sandbox/NAME, with its uid: never another one of the same name."""
    box = sandbox_of(cluster, name)
    return DataPlane(cluster.connection, cluster.namespace, box.name, box.uid)


Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Box:
    name: str
    uid: str
    pod: str
    body: Json


def sandbox_of(cluster: Cluster, text: str) -> Box:
    """Exits with 3 if there is none of that name, with 1 if the claim has no sandbox yet."""
    kind, name = split(text, CLAIMS)
    if kind == CLAIMS:
        claim = cluster.get(CLAIMS, cluster.namespace, name)
        bound = ((claim.get("status") or {}).get("sandbox") or {}).get("name")
        if not bound:
            next_step = advice("claim", cluster.namespace, name, claim) or [f"`sandpool why claim/{name}` shows why"]
            raise Exit(FAILED, f"claim {name!r} in namespace {cluster.namespace} has no sandbox. {next_step[0]}")
        name = bound
    elif kind != SANDBOXES:
        raise Exit(USAGE, f"a {word(kind)} is not a sandbox; name a claim, or write sandbox/NAME")
    body = cluster.get(SANDBOXES, cluster.namespace, name)
    metadata = body["metadata"]
    pod = (metadata.get("annotations") or {}).get(labels.POD_NAME) or name
    return Box(name, str(metadata.get("uid") or ""), str(pod), body)

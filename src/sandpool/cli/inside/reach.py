"""The way into a sandbox, for a name that a user gives."""

from __future__ import annotations

from sandpool.cli.cluster import Cluster
from sandpool.cli.objects.sandbox_of import sandbox_of
from sandpool.sdk._sync.data_plane import DataPlane


def plane_of(cluster: Cluster, name: str) -> DataPlane:
    """That of a claim, or of sandbox/NAME. Another sandbox of the same name is not meant."""
    box = sandbox_of(cluster, name)
    return DataPlane(cluster.connection, cluster.namespace, box.name, box.uid)

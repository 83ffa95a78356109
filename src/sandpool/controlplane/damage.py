"""A data directory whose store is damaged or gone: how that is noticed beyond the store itself, and what is kept for later.

Objects that are lost must not take their volumes with them: the node removes the folders of pods and claims that nobody knows. So
these are moved to where the damaged files are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from sandpool.controlplane.data_dir import DataDir
from sandpool.controlplane.objects.keys import prefix_of
from sandpool.controlplane.store.opening import Terms
from sandpool.controlplane.store.record import Record
from sandpool.model.kinds import PERSISTENT_VOLUME_CLAIMS, PODS
from sandpool.telemetry.log import logger

log = logger(__name__)

_FOLDERS = {"pods": prefix_of(PODS), "claims": prefix_of(PERSISTENT_VOLUME_CLAIMS)}


def store_terms(directory: DataDir, accept_loss: bool = False) -> Terms:
    """On which terms the store of a data directory is opened."""
    return Terms(
        accept_loss=accept_loss,
        check=unlike_an_object,
        traces=traces(directory),
        keep=lambda diagnosis, kept: keep_volumes(directory, diagnosis.live.values(), kept),
    )


def traces(directory: DataDir) -> tuple[str, ...]:
    """What is in the directory that is only made after its store. Images are not: they may be imported before the first start."""
    node = directory.node
    made = (directory.access, directory.kubeconfig, directory.audit, *(node / "volumes" / name for name in _FOLDERS))
    return tuple(str(path.relative_to(directory.root)) for path in made if _holds_something(path))


def _holds_something(path: Path) -> bool:
    try:
        return any(path.iterdir()) if path.is_dir() else path.exists()
    except OSError:
        return True


def unlike_an_object(record: Record) -> str:
    """What keeps a stored value from being the object that its key and revision say; empty if nothing does. For values without
    a checksum: of a store or a backup that an older version wrote."""
    document = _decoded(record)
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict):
        return "its value is not the JSON of an object"
    if metadata.get("name") != record.key.rpartition("/")[2]:
        return "its value is that of another object"
    if metadata.get("resourceVersion") != str(record.revision):
        return "its value is that of another revision"
    return ""


def _decoded(record: Record) -> Any:
    try:
        return msgspec.json.decode(record.value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def keep_volumes(directory: DataDir, live: Iterable[Record], kept: Path) -> None:
    """Moves the volumes of pods and claims that are not among the live objects into the directory `kept`."""
    records = tuple(live)
    for name, prefix in _FOLDERS.items():
        known = {_uid(record) for record in records if record.key.startswith(prefix)}
        folder = directory.node / "volumes" / name
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name not in known and not path.name.startswith("."):
                target = kept / "volumes" / name / path.name
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.rename(path, target)
                log.warning("a volume whose object is lost was set aside", volume=path, now=target)


def _uid(record: Record) -> str:
    document = _decoded(record)
    return str(document["metadata"].get("uid", "")) if isinstance(document, dict) else ""

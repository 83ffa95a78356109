"""A data directory whose store is damaged or missing: how to detect that from other files, and how to keep the volumes of lost objects.

The node removes volume directories of pods and claims that are not in the store. The volumes of lost objects must survive, so they are moved
beside the damaged files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from sandpool.controlplane.data_dir import DataDir
from sandpool.controlplane.objects.keys import prefix_of
from sandpool.controlplane.store.opening import OpenOptions
from sandpool.controlplane.store.record import Record
from sandpool.model.kinds import PERSISTENT_VOLUME_CLAIMS, PODS
from sandpool.telemetry.log import logger

log = logger(__name__)

_VOLUME_DIRECTORIES = {"pods": prefix_of(PODS), "claims": prefix_of(PERSISTENT_VOLUME_CLAIMS)}


def open_options(directory: DataDir, accept_loss: bool = False) -> OpenOptions:
    """The options with which the store of a data directory is opened."""
    return OpenOptions(
        accept_loss=accept_loss,
        check=object_problem,
        traces=traces(directory),
        keep=lambda diagnosis, kept: keep_volumes(directory, diagnosis.live.values(), kept),
    )


def traces(directory: DataDir) -> tuple[str, ...]:
    """Paths that only exist if the directory once had a store. Images do not count: they may be imported before the first start."""
    node = directory.node
    made = (
        directory.access,
        directory.kubeconfig,
        directory.audit,
        *(node / "volumes" / name for name in _VOLUME_DIRECTORIES),
    )
    return tuple(str(path.relative_to(directory.root)) for path in made if _holds_something(path))


def _holds_something(path: Path) -> bool:
    try:
        return any(path.iterdir()) if path.is_dir() else path.exists()
    except OSError:
        return True


def object_problem(record: Record) -> str:
    """Why a stored value cannot be the object that its key and revision name; empty if it can. For values without a checksum, from a
    store or a backup that an older version wrote."""
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
    for name, prefix in _VOLUME_DIRECTORIES.items():
        known = {_uid(record) for record in records if record.key.startswith(prefix)}
        volumes = directory.node / "volumes" / name
        for path in sorted(volumes.iterdir()) if volumes.is_dir() else ():
            if path.name not in known and not path.name.startswith("."):
                target = kept / "volumes" / name / path.name
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.rename(path, target)
                log.warning("a volume whose object is lost was set aside", volume=path, now=target)


def _uid(record: Record) -> str:
    document = _decoded(record)
    return str(document["metadata"].get("uid", "")) if isinstance(document, dict) else ""

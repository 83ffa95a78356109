"""Resolves the references of a pod's volumes, for node/volumes. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import PurePosixPath

import msgspec

from sandpool.model import quantities
from sandpool.model.core import PersistentVolumeClaim
from sandpool.node.kubelet.content_budget import BLOCK
from sandpool.node.kubelet.contents import Contents
from sandpool.node.kubelet.downward import Fields, NoSuchField
from sandpool.node.kubelet.environment import missing
from sandpool.node.kubelet.pods import NodeContainer, NodePod
from sandpool.node.kubelet.references import FAILED_MOUNT, Found, Unresolved
from sandpool.node.kubelet.sources import (
    ClaimSource,
    ConfigMapSource,
    DownwardSource,
    KeyToPath,
    PodVolume,
    ProjectedSource,
    Projection,
    SecretSource,
)
from sandpool.node.volumes.spec import Claim, Content, EmptyDir, HostPath, VolumeSpec

_MODE = 0o644
MOST = 32 << 20
"""Maximum bytes of all files with content from the API in one pod; each file counts as at least one block."""


@dataclass(slots=True)
class _SizeBudget:
    """The bytes left for the files of one pod."""

    left: int = MOST

    def take(self, size: int) -> None:
        self.left -= max(size, BLOCK)
        if self.left < 0:
            raise Unresolved(
                FAILED_MOUNT,
                f"the files of this pod's volumes take more than {MOST} bytes together; mount less of its ConfigMaps and Secrets",
            )


@dataclass(slots=True)
class _Files:
    """The files of a volume while it is being assembled."""

    room: _SizeBudget
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    modes: dict[str, int] = field(default_factory=dict)

    def add(self, path: str, data: bytes, mode: int | None) -> None:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts:
            raise Unresolved(FAILED_MOUNT, f"the path {path!r} leaves the volume; write a relative one without ..")
        self.room.take(len(data))
        self.files[path] = data
        if mode is not None:
            self.modes[path] = mode


def volume_specs(pod: NodePod, contents: Contents, fields: Fields) -> tuple[VolumeSpec, ...]:
    made, room = [], _SizeBudget()
    for volume in pod.spec.volumes:
        try:
            made.append(VolumeSpec(volume.name, _source(pod, volume, contents, fields, room)))
        except (Unresolved, NoSuchField, quantities.QuantityError) as error:
            why = error.message if isinstance(error, Unresolved) else str(error)
            raise Unresolved(FAILED_MOUNT, f'volume "{volume.name}": {why}') from None
    return tuple(made)


def content_specs(pod: NodePod, contents: Contents, fields: Fields) -> tuple[VolumeSpec, ...]:
    """Only volumes with content from the API, and only those that can be resolved."""
    made: list[VolumeSpec] = []
    room = _SizeBudget()
    for volume in pod.spec.volumes:
        if volume.shows:
            with contextlib.suppress(Unresolved, NoSuchField, quantities.QuantityError):
                made.append(VolumeSpec(volume.name, _source(pod, volume, contents, fields, room)))
    return tuple(made)


def _source(
    pod: NodePod, volume: PodVolume, contents: Contents, fields: Fields, room: _SizeBudget
) -> EmptyDir | Content | Claim | HostPath:
    match volume:
        case PodVolume(empty_dir=source) if source is not None:
            return EmptyDir(source.medium == "Memory", _bytes(source.size_limit))
        case PodVolume(config_map=source) if source is not None:
            files = _Files(room)
            _config_map(pod, source, contents, files)
            return _content(files, source.default_mode)
        case PodVolume(secret=source) if source is not None:
            files = _Files(room)
            _secret(pod, source, source.secret_name, contents, files)
            return _content(files, source.default_mode, secret=True)
        case PodVolume(downward_api=source) if source is not None:
            files = _Files(room)
            _downward(source, fields, files)
            return _content(files, source.default_mode)
        case PodVolume(projected=source) if source is not None:
            return _projected(pod, source, contents, fields, room)
        case PodVolume(persistent_volume_claim=source) if source is not None:
            return _claim(pod, source, contents.found)
        case PodVolume(host_path=source) if source is not None:
            return HostPath(source.path, source.type)
    raise Unresolved(
        FAILED_MOUNT,
        "its source is not supported here; use emptyDir, configMap, secret, downwardAPI, projected, persistentVolumeClaim "
        "or hostPath",
    )


def _content(files: _Files, mode: int | None, *, secret: bool = False) -> Content:
    return Content(files.files, _MODE if mode is None else mode, files.modes, secret)


def _config_map(pod: NodePod, source: ConfigMapSource, contents: Contents, files: _Files) -> None:
    there = contents.found.config_maps.get(source.name)
    if there is None:
        if not source.optional:
            raise missing(pod, "ConfigMap", source.name)
        return
    read = partial(contents.config_map, source.name)
    _take(files, source.items, chain(there.data, there.binary_data), read, f"configmap {source.name}", source.optional)


def _secret(pod: NodePod, source: SecretSource, name: str, contents: Contents, files: _Files) -> None:
    there = contents.found.secrets.get(name)
    if there is None:
        if not source.optional:
            raise missing(pod, "Secret", name)
        return
    data = there.data

    def read(key: str) -> bytes | None:
        return contents.secret(name, key) if key in data else None

    _take(files, source.items, data, read, f"secret {name}", source.optional)


def _take(
    files: _Files,
    items: Sequence[KeyToPath],
    keys: Iterable[str],
    read: Callable[[str], bytes | None],
    what: str,
    optional: bool,
) -> None:
    """Adds the listed items. Without items, every key becomes a file of that name."""
    for item in items or (KeyToPath(key=key, path=key) for key in keys):
        data = read(item.key)
        if data is not None:
            files.add(item.path, data, item.mode)
        elif not optional:
            raise Unresolved(
                FAILED_MOUNT, f"{what} references non-existent config key: {item.key}; add the key, or make it optional"
            )


def _downward(source: DownwardSource, fields: Fields, files: _Files) -> None:
    for item in source.items:
        if item.field_ref is not None:
            path = item.field_ref.field_path
            if not path.startswith("metadata."):
                raise NoSuchField(f"fieldPath {path!r} cannot be a file; only fields of metadata can")
            data = fields.file(path)
        elif item.resource_field_ref is not None:
            data = fields.resource(NodeContainer(), item.resource_field_ref).encode()
        else:
            data = b""
        files.add(item.path, data, item.mode)


def _projected(pod: NodePod, source: ProjectedSource, contents: Contents, fields: Fields, room: _SizeBudget) -> Content:
    files, secret = _Files(room), False
    for part in source.sources:
        if part.config_map is not None:
            _config_map(pod, part.config_map, contents, files)
        elif part.secret is not None:
            secret = True
            _secret(pod, part.secret, part.secret.name, contents, files)
        elif part.downward_api is not None:
            _downward(part.downward_api, fields, files)
        else:
            raise Unresolved(FAILED_MOUNT, _no_projection(part))
    return _content(files, source.default_mode, secret=secret)


def _no_projection(part: Projection) -> str:
    if part.service_account_token is not None:
        return (
            "the source serviceAccountToken is not supported: sandboxes have no access to this cluster's API. "
            "Remove it, or use a secret"
        )
    return "a source of it is not supported here; use configMap, secret or downwardAPI"


def _claim(pod: NodePod, source: ClaimSource, found: Found) -> Claim:
    there = found.claims.get(source.claim_name)
    if there is None:
        raise Unresolved(
            FAILED_MOUNT,
            f'persistentvolumeclaim "{source.claim_name}" not found; create it in namespace {pod.metadata.namespace}',
        )
    if there.metadata.leaving:
        raise Unresolved(
            FAILED_MOUNT,
            f'persistentvolumeclaim "{source.claim_name}" is being deleted; wait until it is gone and create it again',
        )
    return Claim(there.metadata.namespace, there.metadata.name, there.metadata.uid, requested(there), source.read_only)


class _ClaimResources(msgspec.Struct):
    requests: dict[str, str | int | float] = {}


class ClaimSpec(msgspec.Struct, rename="camel"):
    access_modes: list[str] = []
    resources: _ClaimResources = msgspec.field(default_factory=_ClaimResources)


def claim_spec(claim: PersistentVolumeClaim) -> ClaimSpec:
    return msgspec.json.decode(claim.spec, type=ClaimSpec) if isinstance(claim.spec, msgspec.Raw) else ClaimSpec()


def requested(claim: PersistentVolumeClaim) -> int | None:
    """The requested storage in bytes; None if there is no request."""
    return _bytes(claim_spec(claim).resources.requests.get("storage"))


def _bytes(text: str | int | float | None) -> int | None:
    return None if text is None else quantities.parse(text).value

"""What survives the suspension of a sandbox: the files in persistent volumes, and nothing else. Pure; objects are plain JSON.

Suspending deletes the pod. Its processes end, and with it go the writable layer of each container and every volume that lives
as long as a pod, such as an emptyDir.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sandpool.sdk.answers import printable

Object = Mapping[str, Any]

OUTLIVING = ("persistentVolumeClaim", "hostPath", "nfs")
"""Kinds of volumes whose files outlive the pod."""


def kept_paths(box: Object) -> tuple[str, ...]:
    """The directories of a Sandbox whose files are there again after `resume`, sorted; empty: no file is."""
    spec = box.get("spec") or {}
    pod = (spec.get("podTemplate") or {}).get("spec") or {}
    volumes = {*_templates(spec), *_outliving(pod)}
    mounts = (mount for container in pod.get("containers") or () for mount in container.get("volumeMounts") or ())
    return tuple(sorted({printable(str(one.get("mountPath"))) for one in mounts if one.get("name") in volumes}))


def outlook(box: Object) -> str:
    """What suspending this Sandbox keeps and what it loses, as one sentence that begins with a small letter."""
    kept = kept_paths(box)
    if not kept:
        return (
            "no file is kept: the sandbox has no persistent volume (volumeClaimTemplates in its template), "
            "and all processes end"
        )
    return f"files in {', '.join(kept)} are kept; all other files are lost, and all processes end"


def _templates(spec: Object) -> Iterator[str]:
    for one in spec.get("volumeClaimTemplates") or ():
        yield str((one.get("metadata") or {}).get("name", ""))


def _outliving(pod: Object) -> Iterator[str]:
    for volume in pod.get("volumes") or ():
        if any(volume.get(kind) is not None for kind in OUTLIVING):
            yield str(volume.get("name", ""))

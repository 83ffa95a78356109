"""The pod of a sandbox: how it is made, and which of its labels and annotations follow the sandbox while it runs.

Keys copied from the pod template are recorded on the pod, so that a key that leaves the template leaves the pod too, and keys
that somebody else put there stay. Keys of the system are never taken from a template: they follow from the sandbox's owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.ownership import adopted_metadata, controlled_by, identity
from sandpool.controllers.sandbox.steps import Body, Change, Create, change
from sandpool.controllers.sandbox.view import SandboxView, extension_owner
from sandpool.controllers.sandbox.volumes import merged_volumes
from sandpool.model import labels as keys
from sandpool.model.blueprint import pod_spec_hash
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import PODS
from sandpool.model.pod import Pod
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import PodMetadata, Sandbox

OWNER_LABELS = (keys.WARM_POOL, keys.TEMPLATE_REF_HASH, keys.CLAIM_UID)
"""Labels that follow from the pool or claim that owns the sandbox."""

Delta = dict[str, str | None]
"""A merge patch of a map: None removes."""


def create_pod(view: SandboxView, options: Options) -> Create:
    sandbox = view.sandbox
    spec: Body = msgspec.json.decode(sandbox.spec.pod_template.spec)
    metadata: Body = {
        "name": sandbox.metadata.name,
        "namespace": sandbox.metadata.namespace,
        "labels": {**_template_labels(sandbox), **_system_labels(view)},
        "ownerReferences": controlled_by(sandbox),
    }
    records = {key: value for key, value in _records(sandbox, options).items() if value}
    metadata["annotations"] = {
        **_template_annotations(sandbox, options),
        **records,
        **_trace(sandbox),
        keys.POD_SPEC_HASH: pod_spec_hash(sandbox.spec.pod_template.spec),
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": merged_volumes(spec, sandbox)}
    return Create(PODS, body, gated=True)


def adopt_pod(view: SandboxView, pod: Pod, options: Options) -> Change:
    metadata = adopted_metadata(pod, view.sandbox)
    delta = metadata_delta(view, pod, options)
    for part, changes in delta.items():
        metadata[part] = {**changes, **metadata.get(part, {})}
    return change(PODS, pod.metadata, {"metadata": metadata}, "take it over", takes=True)


def sync_pod(view: SandboxView, pod: Pod, options: Options) -> Change | None:
    """The patch that a running pod needs, or None."""
    delta = metadata_delta(view, pod, options)
    return change(PODS, pod.metadata, {"metadata": delta}, "follow the metadata") if delta else None


def metadata_delta(view: SandboxView, pod: Pod, options: Options) -> dict[str, Delta]:
    """What differs between the pod's labels and annotations and what they should be."""
    sandbox, meta = view.sandbox, pod.metadata
    labels = _pruned(meta.annotations.get(keys.PROPAGATED_LABELS, ""), _template_labels(sandbox), keys.reserved_label)
    labels |= _unowned_labels(view) | _system_labels(view)
    annotations = _pruned(
        meta.annotations.get(keys.PROPAGATED_ANNOTATIONS, ""),
        _template_annotations(sandbox, options),
        keys.reserved_annotation,
    )
    annotations |= _trace(sandbox)
    records: Delta = dict(_records(sandbox, options))
    delta = {
        "labels": _difference(meta.labels, labels),
        # A record that is absent says the same as an empty one.
        "annotations": _difference(meta.annotations, annotations) | _difference(meta.annotations, records, absent=""),
    }
    return {part: changes for part, changes in delta.items() if changes}


def outdated(sandbox: Sandbox, pod: Pod) -> bool:
    """Whether the pod was made from another spec than the sandbox has now. Of pods that others made nobody can say."""
    made_from = pod.metadata.annotations.get(keys.POD_SPEC_HASH)
    return made_from is not None and made_from != pod_spec_hash(sandbox.spec.pod_template.spec)


def _template_metadata(sandbox: Sandbox) -> PodMetadata:
    return sandbox.spec.pod_template.metadata or PodMetadata()


def _template_labels(sandbox: Sandbox) -> dict[str, str]:
    return {k: v for k, v in _template_metadata(sandbox).labels.items() if not keys.reserved_label(k)}


def _template_annotations(sandbox: Sandbox, options: Options) -> dict[str, str]:
    """Those of the template and, on a member that nobody has claimed, that it may be evicted."""
    found = {k: v for k, v in _template_metadata(sandbox).annotations.items() if not keys.reserved_annotation(k)}
    owner = extension_owner(sandbox)
    if options.evictable_members and owner is not None and owner.kind == SandboxWarmPool.kind:
        found.setdefault(keys.SAFE_TO_EVICT, "true")
    return found


def _trace(sandbox: Sandbox) -> dict[str, str]:
    """The trace that the sandbox belongs to goes on in its pod. Where it has none, what the pod says is not ours."""
    context = sandbox.metadata.annotations.get(keys.TRACE_CONTEXT)
    return {keys.TRACE_CONTEXT: context} if context else {}


def _records(sandbox: Sandbox, options: Options) -> dict[str, str]:
    return {
        keys.PROPAGATED_LABELS: ",".join(sorted(_template_labels(sandbox))),
        keys.PROPAGATED_ANNOTATIONS: ",".join(sorted(_template_annotations(sandbox, options))),
    }


def _system_labels(view: SandboxView) -> dict[str, str]:
    """Labels of the system that the pod must have."""
    found = identity(view.sandbox)
    if creator := view.sandbox.metadata.labels.get(keys.CREATED_BY):
        found[keys.CREATED_BY] = keys.created_by(creator).value
    return found | _owner_labels(view)


def _owner_labels(view: SandboxView) -> dict[str, str]:
    """An owner that does not exist implies nothing: anybody can write a reference and a label."""
    owner, labels = extension_owner(view.sandbox), view.sandbox.metadata.labels
    if owner is None or not view.owner_alive:
        return {}
    found = {}
    if reference := labels.get(keys.TEMPLATE_REF_HASH):
        found[keys.TEMPLATE_REF_HASH] = reference
    if owner.kind == SandboxWarmPool.kind and (pool := labels.get(keys.WARM_POOL)):
        found[keys.WARM_POOL] = pool
    if owner.kind == SandboxClaim.kind:
        found[keys.CLAIM_UID] = owner.uid
    return found


def _unowned_labels(view: SandboxView) -> Delta:
    """Labels of the system that the pod must not have unless `_system_labels` says otherwise. Those of an owner that is
    just going away stay as they are: the sandbox goes next, and the write would be in vain."""
    unwanted: Delta = {keys.CREATED_BY: None}
    if extension_owner(view.sandbox) is None or view.owner_alive:
        unwanted |= dict.fromkeys(OWNER_LABELS)
    return unwanted


def _pruned(recorded: str, wanted: dict[str, str], reserved: Callable[[str], bool]) -> Delta:
    """The template's keys, and None for keys that were once copied and are no longer there, or never should have been."""
    kept = (keys.SANDBOX_NAME_HASH, keys.PROPAGATED_LABELS, keys.PROPAGATED_ANNOTATIONS, keys.POD_SPEC_HASH)
    former = [key for key in recorded.split(",") if key and key not in kept]
    gone: Iterable[str] = (key for key in former if reserved(key) or key not in wanted)
    return {**dict.fromkeys(gone), **wanted}


def _difference(present: dict[str, str], wanted: Any, absent: str | None = None) -> Delta:
    return {key: value for key, value in wanted.items() if present.get(key, absent) != value}

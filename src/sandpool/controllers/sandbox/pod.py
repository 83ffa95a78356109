"""The pod of a sandbox: how it is created, and which of its labels and annotations follow the sandbox while it runs. Pure.

Keys copied from the pod template are recorded on the pod, so that a key that leaves the template leaves the pod too, and keys
that somebody else put there stay. Keys of the system are never taken from a template: they follow from the sandbox's owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.steps import Body, Change, Create, adopted_metadata, change, controlled_by, identity
from sandpool.controllers.sandbox.view import SandboxView, extension_owner
from sandpool.controllers.sandbox.volumes import merged_volumes
from sandpool.model import labels as keys
from sandpool.model.blueprint import pod_spec_hash
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import PODS
from sandpool.model.metadata import OwnerReference
from sandpool.model.pod import Pod
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox

OWNER_LABELS = (keys.WARM_POOL, keys.TEMPLATE_REF_HASH, keys.CLAIM_UID)
"""Labels that follow from the pool or claim that owns the sandbox."""

Delta = dict[str, str | None]
"""A merge patch of a map: None removes."""


def create_pod(view: SandboxView, options: Options) -> Create:
    sandbox, owner = view.sandbox, extension_owner(view.sandbox)
    spec: Body = msgspec.json.decode(sandbox.spec.pod_template.spec)
    labels, annotations = _template_labels(sandbox), _template_annotations(sandbox, owner, options)
    records = {key: value for key, value in _records(labels, annotations).items() if value}
    metadata: Body = {
        "name": sandbox.metadata.name,
        "namespace": sandbox.metadata.namespace,
        "labels": labels | _system_labels(sandbox, owner, view.owner_alive),
        "ownerReferences": controlled_by(sandbox),
        "annotations": {
            **annotations,
            **records,
            **_trace(sandbox),
            keys.POD_SPEC_HASH: pod_spec_hash(sandbox.spec.pod_template.spec),
        },
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": merged_volumes(spec, sandbox)}
    return Create(PODS, body, gated=True)


def adopt_pod(view: SandboxView, pod: Pod, options: Options) -> Change:
    metadata = adopted_metadata(pod, view.sandbox)
    delta = metadata_delta(view.sandbox, pod, options, owner_alive=view.owner_alive)
    for part, changes in delta.items():
        metadata[part] = {**changes, **metadata.get(part, {})}
    return change(PODS, pod.metadata, {"metadata": metadata}, "take it over", takes=True)


def sync_pod(view: SandboxView, pod: Pod, options: Options) -> Change | None:
    """The patch that a running pod needs, or None."""
    delta = metadata_delta(view.sandbox, pod, options, owner_alive=view.owner_alive)
    return change(PODS, pod.metadata, {"metadata": delta}, "follow the metadata") if delta else None


def metadata_delta(sandbox: Sandbox, pod: Pod, options: Options, *, owner_alive: bool) -> dict[str, Delta]:
    """What differs between the pod's labels and annotations and what they should be."""
    owner, has, says = extension_owner(sandbox), pod.metadata.labels, pod.metadata.annotations
    labels, annotations = _template_labels(sandbox), _template_annotations(sandbox, owner, options)
    records = _records(labels, annotations)
    wanted: Delta = {
        **_pruned(says.get(keys.PROPAGATED_LABELS, ""), labels, keys.reserved_label),
        **_unowned_labels(owner, owner_alive),
        **_system_labels(sandbox, owner, owner_alive),
    }
    wanted_annotations = _pruned(
        says.get(keys.PROPAGATED_ANNOTATIONS, ""), annotations, keys.reserved_annotation
    ) | _trace(sandbox)
    delta: dict[str, Delta] = {}
    if changes := {key: value for key, value in wanted.items() if has.get(key) != value}:
        delta["labels"] = changes
    changes = {key: value for key, value in wanted_annotations.items() if says.get(key) != value}
    # An absent record means the same as an empty one.
    changes |= {key: value for key, value in records.items() if says.get(key, "") != value}
    if changes:
        delta["annotations"] = changes
    return delta


def outdated(sandbox: Sandbox, pod: Pod) -> bool:
    """Whether the pod was made from another spec than the sandbox has now. Unknown, so False, for pods that we did not create."""
    made_from = pod.metadata.annotations.get(keys.POD_SPEC_HASH)
    return made_from is not None and made_from != pod_spec_hash(sandbox.spec.pod_template.spec)


def _template_labels(sandbox: Sandbox) -> dict[str, str]:
    given = sandbox.spec.pod_template.metadata
    if given is None:
        return {}
    return {key: value for key, value in given.labels.items() if not key.startswith(keys.RESERVED_PREFIXES)}


def _template_annotations(sandbox: Sandbox, owner: OwnerReference | None, options: Options) -> dict[str, str]:
    """Those of the template and, on an unclaimed member, `safe-to-evict`."""
    given = sandbox.spec.pod_template.metadata
    found: dict[str, str] = {}
    if given is not None and given.annotations:
        found = {key: value for key, value in given.annotations.items() if not keys.reserved_annotation(key)}
    if options.evictable_members and owner is not None and owner.kind == SandboxWarmPool.kind:
        found.setdefault(keys.SAFE_TO_EVICT, "true")
    return found


def _trace(sandbox: Sandbox) -> dict[str, str]:
    """The sandbox's trace context, for its pod. If it has none, the pod's own annotation is left alone."""
    context = sandbox.metadata.annotations.get(keys.TRACE_CONTEXT)
    return {keys.TRACE_CONTEXT: context} if context else {}


def _records(labels: dict[str, str], annotations: dict[str, str]) -> dict[str, str]:
    """The annotations that record which keys were copied."""
    return {
        keys.PROPAGATED_LABELS: ",".join(sorted(labels)),
        keys.PROPAGATED_ANNOTATIONS: ",".join(sorted(annotations)),
    }


def _system_labels(sandbox: Sandbox, owner: OwnerReference | None, owner_alive: bool) -> dict[str, str]:
    """Labels of the system that the pod must have. An owner that does not exist implies nothing: anybody can write a reference
    and a label."""
    labels = sandbox.metadata.labels
    found = identity(sandbox)
    if creator := labels.get(keys.CREATED_BY):
        found[keys.CREATED_BY] = str(keys.created_by(creator))
    if owner is None or not owner_alive:
        return found
    if reference := labels.get(keys.TEMPLATE_REF_HASH):
        found[keys.TEMPLATE_REF_HASH] = reference
    if owner.kind == SandboxWarmPool.kind and (pool := labels.get(keys.WARM_POOL)):
        found[keys.WARM_POOL] = pool
    if owner.kind == SandboxClaim.kind:
        found[keys.CLAIM_UID] = owner.uid
    return found


def _unowned_labels(owner: OwnerReference | None, owner_alive: bool) -> Delta:
    """System labels that the pod must not have unless `_system_labels` adds them. If the owner is gone, they stay: the sandbox will be
    deleted next, and the write would be wasted."""
    unwanted: Delta = {keys.CREATED_BY: None}
    if owner is None or owner_alive:
        unwanted |= dict.fromkeys(OWNER_LABELS)
    return unwanted


def _pruned(recorded: str, wanted: dict[str, str], reserved: Callable[[str], bool]) -> Delta:
    """The template's keys, and None for keys that were once copied and are no longer there, or never should have been."""
    if not recorded:
        return dict(wanted)
    kept = (keys.SANDBOX_NAME_HASH, keys.PROPAGATED_LABELS, keys.PROPAGATED_ANNOTATIONS, keys.POD_SPEC_HASH)
    former = [key for key in recorded.split(",") if key and key not in kept]
    gone: Iterable[str] = (key for key in former if reserved(key) or key not in wanted)
    return {**dict.fromkeys(gone), **wanted}

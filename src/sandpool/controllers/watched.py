"""How much of a cluster the controllers follow, and how much they remember of it.

They see all pods and Services, because a sandbox may take over one that bears no label of ours, and must not mistake one that
has its name for its own. Of a pod that is under somebody else's control, and so never becomes a sandbox's, they remember only
who it is; of one that may be a sandbox's, what the controllers read. Who cannot spare the traffic either asks the server for what a label marks: then an object without it is
noticed when its name turns out to be taken.
"""

from __future__ import annotations

from sys import intern
from typing import Any

from sandpool.controllers.cache_transforms import Once, condensed, interned, owners_of
from sandpool.loop.cache import Cache
from sandpool.loop.reflector import Scope
from sandpool.model.kinds import OURS
from sandpool.model.labels import RESERVED_PREFIXES, SANDBOX_NAME_HASH, TEMPLATE_REF_HASH
from sandpool.model.metadata import Metadata, Object
from sandpool.model.pod import ContainerStatus, Pod, PodCondition, PodSpec, PodStatus
from sandpool.model.reasons import Type

_GROUPS = frozenset(each.group for each in OURS)
_READ = (Type.READY.value, Type.POD_SCHEDULED.value)
"""Conditions of a pod that somebody reads."""
_MOST, _MOST_NODES = 1024, 16384  # templates, nodes


class _Specs(dict[str, PodSpec]):
    """What is remembered of a spec is its node: one for each."""

    def __missing__(self, node: str) -> PodSpec:
        if len(self) >= _MOST_NODES:
            self.clear()
        spec = self[node] = PodSpec(node_name=node)
        return spec


class Remembered:
    """What a cache of pods remembers of each; one for each cache."""

    def __init__(self) -> None:
        self._annotations: dict[str, dict[str, str]] = {}  # by template: its pods have the same
        self._specs = _Specs()
        self._once = Once()

    def __call__(self, pod: Pod) -> Pod:
        """Of a pod that belongs to others, its name, its identity and its owner; of others all metadata, its node, and of its
        status what Ready and the like are read off. Times of its conditions, containers that run and the rest of its spec are
        not there: whoever begins to read more adds it here."""
        meta = pod.metadata
        if SANDBOX_NAME_HASH not in meta.labels and _foreign(meta):
            return _identity(meta)
        spec = self._specs[pod.spec.node_name]
        if spec is pod.spec:
            return pod  # it has been here before
        template = meta.labels.get(TEMPLATE_REF_HASH, "")
        annotations = self._annotations.get(template)
        if annotations is None or annotations != meta.annotations:
            if len(self._annotations) >= _MOST:
                self._annotations.clear()
            annotations = self._annotations[template] = interned(meta.annotations)
        meta = condensed(meta, interned(meta.labels), annotations, owners_of(meta), self._once)
        return Pod(metadata=meta, spec=spec, status=self._status(pod.status))

    def _status(self, status: PodStatus) -> PodStatus:
        conditions: list[PodCondition] = []
        for one in status.conditions:
            if one.type in _READ:
                plain = PodCondition(type=one.type, status=one.status, reason=one.reason, message=one.message)
                conditions.append(plain)
        waiting: list[ContainerStatus] = []
        for container in status.container_statuses:
            if container.state.waiting is not None:
                waiting.append(container)  # noqa: PERF401  # a comprehension is a call, and every step of every pod comes here
        first = status.init_container_statuses
        return PodStatus(
            phase=intern(status.phase),
            reason=intern(status.reason),
            message=status.message,
            conditions=self._once[tuple(conditions)],
            pod_ips=status.pod_ips,
            init_container_statuses=tuple([one for one in first if one.state.waiting is not None]) if first else (),
            container_statuses=tuple(waiting),
        )


def _foreign(meta: Metadata) -> bool:
    """Under somebody else's control, and nothing says that it concerns us."""
    owner = meta.controller
    if owner is None or owner.group in _GROUPS:
        return False
    return not any(key.startswith(RESERVED_PREFIXES) for key in meta.labels)


def _identity(meta: Metadata) -> Pod:
    assert meta.controller is not None
    return Pod(
        metadata=Metadata(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            deletion_timestamp=meta.deletion_timestamp,
            owner_references=(meta.controller,),
        )
    )


def tracked(obj: Object) -> bool:
    return SANDBOX_NAME_HASH in obj.metadata.labels


def scope(cache: Cache[Any], namespace: str, *, tracked: bool) -> Scope:
    """What to ask a server for."""
    where = namespace if cache.resource.namespaced else ""
    return Scope(where, labels=SANDBOX_NAME_HASH if tracked else "")

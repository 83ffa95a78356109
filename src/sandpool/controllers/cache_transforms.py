"""Cache transforms of the controllers (client-go: TransformFunc): what is kept of each object, and which objects are watched.

Of sandboxes, members of one pool share in memory what they have in common: their spec, labels and owner, and of sandboxes and pods the keys and
most values of labels and annotations, their times and their conditions. A name or a uid is one string, wherever it is used: `sys.intern` forgets
what nobody uses. A spec also keeps alive the text that it was decoded from, which is the whole object; the shared one has a text of its own.
Objects are never changed in place, so sharing is safe.

All pods and Services are watched, because a sandbox may adopt one without our labels, and must not take one that merely has its name for its
own. Of a pod that another controller owns, which therefore never becomes a sandbox's, only the identity is kept; of any other pod, what the
controllers read. Where that traffic is too much, `scope` asks the server for labelled objects only. An object without the label is then noticed when
creating one of its name fails.
"""

from __future__ import annotations

from sys import intern
from typing import Any, NamedTuple

from msgspec.structs import replace

from sandpool.loop.cache import Cache
from sandpool.loop.reflector import Scope
from sandpool.model.kinds import OURS
from sandpool.model.labels import RESERVED_PREFIXES, SANDBOX_NAME_HASH, TEMPLATE_REF_HASH
from sandpool.model.metadata import Metadata, Object, OwnerReference
from sandpool.model.pod import ContainerStatus, Pod, PodCondition, PodSpec, PodStatus
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox, SandboxSpec

Marks = dict[str, str]
"""Labels or annotations."""

_MOST = 1024  # templates
_MOST_BYTES = 16 * 1024 * 1024
"""Of all kept examples together: they stay when the sandboxes are gone."""
_EACH = 256
"""Estimated bytes of a label or an owner."""
MOST_VALUES = 4096
_LONG = 1024  # characters of a condition's message
_FEW = 64  # labels or annotations
_SHORT = 4096  # characters of annotations that are remembered by template: they stay when its pods are gone


class InternTable(dict[Any, Any]):
    """`table[value]` is the first value that was equal to this one; of a tuple, each part as well. When it is full it starts
    over; what is shared by then stays shared. A dict, because known values are found without a call: every event of every
    object looks some up."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self._most = MOST_VALUES if most is None else most

    def __missing__(self, value: Any) -> Any:
        if type(value) is tuple and any(len(getattr(part, "message", "")) > _LONG for part in value):
            return value  # long messages would stay in the table when no object has them any more
        shared = tuple([self[part] for part in value]) if type(value) is tuple else value
        if len(self) >= self._most:
            self.clear()
        self[shared] = shared
        return shared


class _Example(NamedTuple):
    spec: SandboxSpec
    labels: Marks
    owners: tuple[OwnerReference, ...]


class SandboxTransform:
    """The transform for a cache of sandboxes; one instance per cache."""

    def __init__(self) -> None:
        self._examples: dict[tuple[str, str], _Example] = {}  # of each template, the last one with a spec of its own
        self._size = 0  # bytes of what was put there since it was empty
        self._once = InternTable()

    def __call__(self, sandbox: Sandbox) -> Sandbox:
        """The same sandbox, which shares with others what is equal."""
        meta = sandbox.metadata
        mark = meta.labels.get(TEMPLATE_REF_HASH)
        if mark is None:
            return sandbox
        place = (meta.namespace, mark)
        example = self._examples.get(place)
        if example is None or example.spec != sandbox.spec:
            return self._example(place, sandbox)
        if example.spec is sandbox.spec:
            return sandbox  # it was transformed before
        if example.labels == meta.labels and example.owners == meta.owner_references:
            labels, owners = example.labels, example.owners
        else:
            labels, owners = interned(meta.labels), owners_of(meta)
        once, status = self._once, sandbox.status
        return Sandbox(
            metadata=condensed(meta, labels, interned(meta.annotations), owners, once),
            spec=example.spec,
            status=replace(status, conditions=once[status.conditions], node_name=intern(status.node_name)),
        )

    def _example(self, place: tuple[str, str], sandbox: Sandbox) -> Sandbox:
        meta, status = sandbox.metadata, sandbox.status
        meta = condensed(meta, interned(meta.labels), interned(meta.annotations), owners_of(meta), self._once)
        status = replace(status, conditions=self._once[status.conditions])
        spec, size = _on_its_own(sandbox.spec)
        size += _EACH * (len(meta.labels) + len(meta.owner_references))
        self._size += size
        if len(self._examples) >= _MOST or self._size > _MOST_BYTES:
            self._examples.clear()
            self._size = size
        self._examples[place] = _Example(spec, meta.labels, meta.owner_references)
        return Sandbox(metadata=meta, spec=spec, status=status)


def _on_its_own(spec: SandboxSpec) -> tuple[SandboxSpec, int]:
    """The same spec with its own copy of its text, and about how many bytes it takes."""
    template, claims = spec.pod_template, spec.volume_claim_templates
    size = len(template.spec)
    if template.metadata is not None:
        size += _EACH * (len(template.metadata.labels) + len(template.metadata.annotations))
    if claims:
        claims = tuple([replace(claim, spec=claim.spec.copy()) for claim in claims])
        size += sum([len(claim.spec) + _EACH for claim in claims])
    template = replace(template, spec=template.spec.copy())
    return replace(spec, pod_template=template, volume_claim_templates=claims), size


def condensed(
    meta: Metadata, labels: Marks, annotations: Marks, owners: tuple[OwnerReference, ...], once: InternTable
) -> Metadata:
    """The same metadata with these parts, which equal its own."""
    return replace(
        meta,
        name=intern(meta.name),
        namespace=intern(meta.namespace),
        uid=intern(meta.uid),
        creation_timestamp=once[meta.creation_timestamp],
        labels=labels,
        annotations=annotations,
        owner_references=owners,
    )


def interned(marks: Marks) -> Marks:
    """The same labels or annotations, made of interned strings. Many are left as they are: few of them are the same elsewhere, and an interned
    string takes twice the memory of another."""
    if len(marks) > _FEW:
        return marks
    return dict(zip(map(intern, marks), map(intern, marks.values()), strict=True))


def owners_of(meta: Metadata) -> tuple[OwnerReference, ...]:
    return tuple(map(_owner, meta.owner_references))


def _owner(owner: OwnerReference) -> OwnerReference:
    return replace(
        owner,
        api_version=intern(owner.api_version),
        kind=intern(owner.kind),
        name=intern(owner.name),
        uid=intern(owner.uid),
    )


_GROUPS = frozenset(each.group for each in OURS)
_READ = (Type.READY.value, Type.POD_SCHEDULED.value)
"""Conditions of a pod that the controllers read."""
_MOST_NODES = 16384


class _Specs(dict[str, PodSpec]):
    """Of a pod's spec only the node is kept: one shared spec per node."""

    def __missing__(self, node: str) -> PodSpec:
        if len(self) >= _MOST_NODES:
            self.clear()
        spec = self[node] = PodSpec(node_name=node)
        return spec


class PodTransform:
    """The transform for a cache of pods; one instance per cache."""

    def __init__(self) -> None:
        self.annotations_by_template: dict[str, dict[str, str]] = {}  # by template: its pods have the same
        self._specs = _Specs()
        self._once = InternTable()

    def __call__(self, pod: Pod) -> Pod:
        """Keeps of a foreign pod its name, uid, revision and owner; of any other pod all metadata, its node, and what the controllers read of its
        status. Transition times of conditions, running containers and the rest of the spec are dropped: code that begins to read more
        has to add it here."""
        meta = pod.metadata
        if SANDBOX_NAME_HASH not in meta.labels and _foreign(meta):
            return _identity(meta)
        spec = self._specs[pod.spec.node_name]
        if spec is pod.spec:
            return pod  # it was transformed before
        template = meta.labels.get(TEMPLATE_REF_HASH, "")
        annotations = self.annotations_by_template.get(template)
        if annotations is None or annotations != meta.annotations:
            if len(self.annotations_by_template) >= _MOST:
                self.annotations_by_template.clear()
            annotations = interned(meta.annotations)
            if len(annotations) <= _FEW and sum(map(len, annotations.values())) <= _SHORT:
                self.annotations_by_template[template] = annotations
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
    """Whether another controller owns it and it has none of our labels."""
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
    """What the reflector of this cache lists and watches."""
    where = namespace if cache.resource.namespaced else ""
    return Scope(where, labels=SANDBOX_NAME_HASH if tracked else "")

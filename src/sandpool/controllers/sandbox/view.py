"""All that the decision about one sandbox may depend on, read once from the caches. Everything here is a value.

Who owns an object follows from the uid of its controlling owner and from nothing else: labels and names only nominate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from sandpool.model.claim import SandboxClaim
from sandpool.model.core import PersistentVolumeClaim, Service
from sandpool.model.labels import ADOPTABLE, EXTENSIONS, POD_NAME, SANDBOX_NAME_HASH
from sandpool.model.metadata import Key, Object, OwnerReference, Uid
from sandpool.model.names import name_hash
from sandpool.model.pod import Pod
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import GROUP, Sandbox

_EXTENSIONS = f"{EXTENSIONS}/"


class Holding(Enum):
    """Who controls an object, as a sandbox sees it."""

    NOBODY = "nobody"
    OURS = "this sandbox"
    PREDECESSOR = "an earlier sandbox of the same name, so it is about to be collected"
    OTHER = "somebody else"


@dataclass(frozen=True)  # without slots, for cached_property
class SandboxView:
    """A sandbox with its pod, storage, Service and claim, as the caches hold them."""

    sandbox: Sandbox
    owned: tuple[Pod, ...] = ()  # every pod that this sandbox controls, by name
    tracked: Pod | None = None  # the pod that the annotation names, whoever holds it
    named: Pod | None = None  # the pod of the sandbox's own name, whoever holds it
    service: Service | None = None
    claims: tuple[PersistentVolumeClaim | None, ...] = ()  # one for each template
    owner_alive: bool = False  # the controlling owner, an extension, exists with that very uid
    leaving: frozenset[Uid] = frozenset()  # objects that are being deleted, or whose delete was sent

    @cached_property
    def pod(self) -> Pod | None:
        """The pod: ours if there is one, else the one of the expected name. None if several are ours and none of them has the expected
        name."""
        if len(self.owned) == 1:
            return self.owned[0]
        candidates = self.staying or self.owned
        if len(candidates) == 1:
            return candidates[0]
        expected = self.expected
        if not candidates or expected is None or holding(expected, self.sandbox) is Holding.OURS:
            return expected
        return None

    @cached_property
    def expected(self) -> Pod | None:
        """The pod of the annotated name or, failing that, of the sandbox's own name."""
        return self.tracked if self.tracked is not None else self.named

    @cached_property
    def own_pod(self) -> Pod | None:
        pod = self.pod
        return pod if pod is not None and holding(pod, self.sandbox) is Holding.OURS else None

    @cached_property
    def staying(self) -> tuple[Pod, ...]:
        return tuple([pod for pod in self.owned if not self.departing(pod)])

    @property
    def ambiguous(self) -> bool:
        return len(self.owned) > 1 and self.pod is None

    @cached_property
    def own_service(self) -> Service | None:
        """Our Service, unless it is being deleted."""
        service = self.service
        if service is None or self.departing(service) or holding(service, self.sandbox) is not Holding.OURS:
            return None
        return service

    @property
    def orphaned(self) -> OwnerReference | None:
        """The owning pool or claim, if it is not cached: the sandbox is about to be garbage-collected, or its owner about to be
        observed. Without the labels that the owner implies, a pod would run outside its NetworkPolicy."""
        owner = extension_owner(self.sandbox)
        known = owner is not None and owner.kind in (SandboxWarmPool.kind, SandboxClaim.kind)
        return owner if known and not self.owner_alive else None

    def departing(self, obj: Object) -> bool:
        return obj.metadata.uid in self.leaving or obj.metadata.deletion_timestamp is not None


def holding(obj: Object, sandbox: Sandbox) -> Holding:
    owner = obj.metadata.controller
    if owner is None:
        return Holding.NOBODY
    if owner.uid == sandbox.metadata.uid:
        return Holding.OURS
    if (owner.group, owner.kind, owner.name) == (GROUP, sandbox.kind, sandbox.metadata.name):
        return Holding.PREDECESSOR
    return Holding.OTHER


def adoptable(obj: Object, sandbox: Sandbox) -> bool:
    """Whether an object without an owner may be adopted: it has the label `adoptable`, or this sandbox's tracking label."""
    labels = obj.metadata.labels
    return labels.get(ADOPTABLE) == "true" or labels.get(SANDBOX_NAME_HASH) == name_hash(sandbox.metadata.name)


def pointer(sandbox: Sandbox) -> str:
    """The pod name that the annotation gives, if it differs from the sandbox's own."""
    meta = sandbox.metadata
    name = meta.annotations.get(POD_NAME, "")
    return "" if name == meta.name else name


def pod_key(sandbox: Sandbox) -> Key:
    return Key(sandbox.metadata.namespace, pointer(sandbox) or sandbox.metadata.name)


def claim_keys(sandbox: Sandbox) -> Sequence[Key]:
    """The volume claims of a sandbox, in the order of its templates; a template without a name has none."""
    templates = sandbox.spec.volume_claim_templates
    if not templates:
        return ()
    meta = sandbox.metadata
    return [Key(meta.namespace, f"{template.metadata.name}-{meta.name}") for template in templates]


def owner_reference(sandbox: Sandbox) -> OwnerReference:
    return OwnerReference(
        api_version=sandbox.api_version,
        kind=sandbox.kind,
        name=sandbox.metadata.name,
        uid=sandbox.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def extension_owner(sandbox: Sandbox) -> OwnerReference | None:
    """The pool or claim that controls the sandbox, whatever version its reference has."""
    owner = sandbox.metadata.controller
    return owner if owner is not None and owner.api_version.startswith(_EXTENSIONS) else None


def pooled(sandbox: Sandbox) -> bool:
    """Whether the sandbox is an unclaimed member of a pool."""
    owner = extension_owner(sandbox)
    return owner is not None and owner.kind == SandboxWarmPool.kind


def by_name(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    return tuple(sorted(pods, key=lambda pod: pod.metadata.name))

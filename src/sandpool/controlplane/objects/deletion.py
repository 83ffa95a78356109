"""Decides what a DELETE does: remove the object, mark it as being deleted, or nothing, because it already is. Pure.

An object is removed at once unless it has finalizers (then it is marked, and removed with its last finalizer) or is a pod on a
node with a grace period (then the kubelet deletes it with grace 0 at the end). A namespace is marked until it is finalized.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.document import Document, finalizers_of, owning, revision_of
from sandpool.controlplane.objects.options import DeleteOptions
from sandpool.kube.api import Preconditions, Propagation
from sandpool.model import kinds
from sandpool.model.resource import Resource
from sandpool.model.times import parse, seconds

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
UNDELETABLE = ("default", "kube-system", "kube-public")

_FAR = 10**9  # seconds: some thirty years
_FINALIZER = {Propagation.ORPHAN: ORPHAN, Propagation.FOREGROUND: FOREGROUND}


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the object from the store; watchers see this last state."""

    last: Document


@dataclass(frozen=True, slots=True)
class Mark:
    """Store this state: the object has a deletionTimestamp, but finalizers or a grace period keep it."""

    marked: Document


@dataclass(frozen=True, slots=True)
class Leave:
    """Change nothing: the object is already being deleted in this way."""


Verdict = Remove | Mark | Leave


def judge(resource: Resource[Any], old: Document, options: DeleteOptions, now: datetime) -> Verdict:
    if resource == kinds.NAMESPACES:
        return _judge_namespace(resource, old, options, now)
    metadata = old["metadata"]
    check_preconditions(resource, metadata, options.preconditions)
    graceful = resource == kinds.PODS
    departure = _departure(old, options.grace, now) if graceful else _Departure(0, now)
    if departure is None:
        return Leave()
    document = owning(old)
    metadata = document["metadata"]
    finalizers = _finalizers(metadata, options.propagation)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if finalizers or graceful:
        _mark(metadata, departure)
    if not finalizers and departure.grace == 0:
        return Remove(document)
    return Leave() if metadata == old["metadata"] else Mark(document)


def check_preconditions(resource: Resource[Any], metadata: Document, asked: Preconditions | None) -> None:
    if asked is None:
        return
    name, uid = metadata["name"], metadata["uid"]
    if asked.uid is not None and asked.uid != uid:
        why = (
            f"the UID in the precondition ({asked.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated"
        )
        raise refusals.delete_conflict(resource, name, why)
    revision = revision_of(metadata)
    if asked.revision is not None and asked.revision != revision:
        why = (
            f"the ResourceVersion in the precondition ({asked.revision}) does not match the ResourceVersion in record "
            f"({revision}). The object might have been modified"
        )
        raise refusals.delete_conflict(resource, name, why)


def _finalizers(metadata: Document, propagation: Propagation | None) -> list[str]:
    """The finalizers after a delete with this propagation policy. Without a policy, the present ones stay."""
    present = finalizers_of(metadata)
    if propagation is None:
        return present
    kept = [finalizer for finalizer in present if finalizer not in (ORPHAN, FOREGROUND)]
    added = _FINALIZER.get(propagation)
    wanted = [*kept, added] if added else kept
    return present if set(wanted) == set(present) else wanted


@dataclass(frozen=True, slots=True)
class _Departure:
    grace: int  # seconds
    at: datetime


def _mark(metadata: Document, departure: _Departure) -> None:
    """Sets deletionTimestamp and grace period. The first time, generation increases, because controllers now have other work to do."""
    present = metadata.get("deletionTimestamp")
    if present is None and metadata.get("generation"):
        metadata["generation"] += 1
    if present is None or parse(present) > departure.at:
        metadata["deletionTimestamp"] = seconds(departure.at)
    metadata["deletionGracePeriodSeconds"] = departure.grace


def _departure(pod: Document, asked: int | None, now: datetime) -> _Departure | None:
    """The grace period and deletion time of a pod; None if it is already being deleted at least as soon."""
    if asked is not None and asked < 0:
        asked = 1
    metadata = pod["metadata"]
    if "deletionTimestamp" not in metadata:
        grace = _first_grace(pod, asked)
        return _Departure(grace, _shifted(now, grace))
    given = metadata.get("deletionGracePeriodSeconds")
    if not given:
        return _Departure(0, now)
    if asked is None or asked >= given:
        return None
    at = _shifted(parse(metadata["deletionTimestamp"]), asked - given)
    if at >= now or asked == 0:
        return _Departure(asked, max(at, now))
    return _Departure(1, now)  # its grace period is over, but the kubelet has to finish a graceful deletion


def _shifted(moment: datetime, grace: int) -> datetime:
    """Adds a grace period to a time. It is clamped: a pod may have any 64-bit number, which is out of range for dates."""
    return moment + timedelta(seconds=max(-_FAR, min(grace, _FAR)))


def _first_grace(pod: Document, asked: int | None) -> int:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
        return 0
    if asked is not None:
        return asked
    return int(spec.get("terminationGracePeriodSeconds") or 0)


def _judge_namespace(resource: Resource[Any], old: Document, options: DeleteOptions, now: datetime) -> Verdict:
    metadata = old["metadata"]
    name, asked = metadata["name"], options.preconditions
    if name in UNDELETABLE:
        raise refusals.undeletable(resource, name)
    if asked is not None and asked.uid is not None and asked.uid != metadata["uid"]:
        raise refusals.other_uid(resource, name, asked.uid, metadata["uid"])
    if asked is not None and asked.revision is not None and asked.revision != revision_of(metadata):
        why = (
            f"Precondition failed: ResourceVersion in precondition: {asked.revision}, "
            f"ResourceVersion in object meta: {revision_of(metadata)}"
        )
        raise refusals.conflict(resource, name, why)
    if "deletionTimestamp" in metadata:
        return Remove(owning(old)) if emptied(resource, old) else Leave()
    document = owning(old)
    document["metadata"]["deletionTimestamp"] = seconds(now)
    document["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
    return Remove(document) if emptied(resource, document) else Mark(document)


def emptied(resource: Resource[Any], document: Document) -> bool:
    """Whether nothing keeps an object that is being deleted. A write that leads to this state removes it."""
    metadata = document["metadata"]
    if finalizers_of(metadata) or "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds"):
        return False
    if resource == kinds.NAMESPACES:
        return not (document.get("spec") or {}).get("finalizers")
    return True

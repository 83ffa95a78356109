"""What is still in a namespace that is being deleted, as the conditions that Kubernetes puts into its status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sandpool.controlplane.objects.document import Document
from sandpool.controlplane.store.record import Record
from sandpool.model.resource import Resource
from sandpool.model.times import seconds

MOST = 20
"""Finalizers, or failures, that are named."""
# Type, and reason and message when all is well.
_CALM = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
)


def remaining_conditions(
    present: Iterable[Document],
    remaining: Mapping[Resource[Any], tuple[Record, ...]],
    finalizers: Mapping[str, int],
    failures: Iterable[str],
    now: datetime,
) -> list[Document]:
    """The five conditions; one that says what it said before keeps its time."""
    troubles = _troubles(remaining, finalizers, sorted(failures))
    before = {condition.get("type"): condition for condition in present}
    conditions: list[Document] = []
    for kind, reason, message in _CALM:
        status = "False"
        if kind in troubles:
            status, (reason, message) = "True", troubles[kind]
        old = before.get(kind)
        kept = old.get("lastTransitionTime") if old and old.get("status") == status else None
        since = kept or seconds(now)
        conditions.append(
            {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
        )
    return conditions


def _troubles(
    remaining: Mapping[Resource[Any], tuple[Record, ...]], finalizers: Mapping[str, int], failures: list[str]
) -> dict[str, tuple[str, str]]:
    troubles: dict[str, tuple[str, str]] = {}
    if failures:
        message = f"Failed to delete all resource types, {len(failures)} remaining: {_some(failures)}"
        troubles["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    kinds = sorted(
        f"{resource.plural}.{resource.group} has {len(records)} resource instances"
        for resource, records in remaining.items()
        if records
    )
    if kinds:
        troubles["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {', '.join(kinds)}",
        )
    if finalizers:
        held = _some([f"{name} in {count} resource instances" for name, count in sorted(finalizers.items())])
        message = f"Some content in the namespace has finalizers remaining: {held}"
        troubles["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return troubles


def _some(words: list[str]) -> str:
    """The first of them: objects can have any number of finalizers, and this is stored."""
    more = [f"and {len(words) - MOST} more"] if len(words) > MOST else []
    return ", ".join(words[:MOST] + more)

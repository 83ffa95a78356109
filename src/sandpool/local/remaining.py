"""What is still in a namespace that is being deleted, as the conditions that Kubernetes puts into its status. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sandpool.local.objects.document import Document, decode, finalizers_of
from sandpool.local.store.record import Record
from sandpool.model.resource import Resource
from sandpool.model.times import seconds

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
    failures: Iterable[str],
    now: datetime,
) -> list[Document]:
    """The five conditions; one that says what it said before keeps its time."""
    troubles = _troubles(remaining, sorted(failures))
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


def _troubles(remaining: Mapping[Resource[Any], tuple[Record, ...]], failures: list[str]) -> dict[str, tuple[str, str]]:
    troubles: dict[str, tuple[str, str]] = {}
    if failures:
        message = f"Failed to delete all resource types, {len(failures)} remaining: {', '.join(failures)}"
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
    finalizers = _finalizers(remaining)
    if finalizers:
        held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
        message = f"Some content in the namespace has finalizers remaining: {held}"
        troubles["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return troubles


def _finalizers(remaining: Mapping[Resource[Any], tuple[Record, ...]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for records in remaining.values():
        for record in records:
            found.update(finalizers_of(decode(record)["metadata"]))
    return found

"""The parameters of operations. Inline in each operation, because kubectl looks for them there."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def _query(name: str, description: str, kind: str = "string", **more: Any) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind, **more}}


def _path(name: str, description: str) -> Json:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}


NAMESPACE = _path("namespace", "The namespace of the object.")
NAME = _path("name", "The name of the object.")

PRETTY = _query("pretty", "Whether the answer is indented.", "boolean")
DRY_RUN = _query("dryRun", "All: decide everything and store nothing.", enum=["All"])
FIELD_MANAGER = _query("fieldManager", "Who makes this change.", maxLength=128)
FIELD_VALIDATION = _query(
    "fieldValidation", "What happens to unknown and duplicate fields.", enum=["Ignore", "Strict", "Warn"]
)
_GRACE = _query("gracePeriodSeconds", "How long the object may take to go.", "integer", format="int64")
_ORPHAN = _query("orphanDependents", "Deprecated: use propagationPolicy.", "boolean")
_PROPAGATION = _query(
    "propagationPolicy", "What becomes of the dependents.", enum=["Background", "Foreground", "Orphan"]
)
_LABELS = _query("labelSelector", "Only objects with such labels.")
_FIELDS = _query("fieldSelector", "Only objects with such fields.")

READ = (PRETTY,)
LIST = (
    PRETTY,
    _LABELS,
    _FIELDS,
    _query("limit", "The most objects in one answer.", "integer", format="int64"),
    _query("continue", "The token of the next page, from the answer before."),
)
"""Served but not listed: resourceVersion (a number from the future is answered with 504) and what belongs to watches, whose
answers are streams that the same operation cannot describe."""
WRITE = (PRETTY, DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION)
DELETE = (PRETTY, DRY_RUN, _GRACE, _ORPHAN, _PROPAGATION)
DELETE_COLLECTION = (PRETTY, DRY_RUN, _LABELS, _FIELDS, LIST[3], LIST[4], _GRACE, _ORPHAN, _PROPAGATION)

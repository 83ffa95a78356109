"""Applies patches to stored documents: which patch types a kind accepts, and which error a failure becomes.

A failed `test` and an absent path both become 422 without causes. Callers cannot tell them apart by the message: they have to read the object.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from sandpool.controlplane.admission.causes import invalid, invalid_object, undecodable_patch
from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.document import Document
from sandpool.controlplane.objects.strategy import strategy_of
from sandpool.kube.errors import BadRequest, RequestTooLarge
from sandpool.model.documents import BadPatch, PatchError, PatchTooLarge
from sandpool.model.patch_json import apply_json_patch
from sandpool.model.patch_strategic import apply_strategic_patch
from sandpool.model.patches import Patch, PatchType, apply_merge_patch
from sandpool.model.resource import Resource
from sandpool.model.schemas import structural


def check_type(resource: Resource[Any], patch: Patch, subresource: str) -> None:
    """Raises 415 for a patch type that this kind does not accept."""
    supported = strategy_of(resource).patches
    if patch.type not in supported or (subresource == "scale" and patch.type is PatchType.STRATEGIC):
        raise refusals.unsupported_patch(tuple(supported))


def patched(resource: Resource[Any], document: Document, patch: Patch) -> Document:
    kind = patch.type
    try:
        if kind is PatchType.JSON:
            outcome = apply_json_patch(document, patch.body)
        elif kind is PatchType.MERGE:
            outcome = apply_merge_patch(document, patch.body)
        else:
            outcome = apply_strategic_patch(document, patch.body, structural(resource))
    except PatchTooLarge as error:
        raise RequestTooLarge(f"Request entity too large: {error}") from error
    except BadPatch as error:
        raise BadRequest(str(error)) from error
    except PatchError as error:
        raise refusals.unapplicable() from error
    if not isinstance(outcome, dict):
        raise undecodable_patch(outcome, f"json: cannot unmarshal into Go value of type {resource.kind}")
    if outcome.get("kind") != document["kind"] or outcome.get("apiVersion") != document["apiVersion"]:
        _check_kind(resource, document, outcome)
    return outcome


def _check_kind(resource: Resource[Any], document: Document, outcome: Document) -> None:
    """Refuses a patch that changes kind or apiVersion. As in Kubernetes, the error names the kind that the object would have become."""
    name = document["metadata"]["name"]
    kind, version = outcome.get("kind"), outcome.get("apiVersion")
    if not kind:
        raise undecodable_patch(outcome, f"Object 'Kind' is missing in '{msgspec.json.encode(outcome).decode()}'")
    if kind != document["kind"]:
        cause = invalid("kind", kind, f"must be {document['kind']}")
        raise invalid_object(replace(resource, kind=str(kind or "")), name, [cause])
    if version != document["apiVersion"]:
        cause = invalid("apiVersion", version, f"must be {document['apiVersion']}")
        group = str(version or "").rpartition("/")[0]
        raise invalid_object(replace(resource, group=group), name, [cause])

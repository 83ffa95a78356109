"""The errors of requests, with the messages of Kubernetes.

Clients branch on code and reason, and people search for the message: both are part of the contract. Admission has the
messages of schema violations; all others are here.
"""

from __future__ import annotations

from typing import Any

from sandpool.kube.errors import (
    AlreadyExists,
    BadRequest,
    Cause,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerTimeout,
    TooManyRequests,
    UnsupportedMedia,
)
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
UNAPPLICABLE = "the server rejected our request due to an error in our request"
NAMESPACE_MISMATCH = "the namespace of the provided object does not match the namespace sent on the request"
_INCONSISTENT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def _details(resource: Resource[Any], name: str) -> dict[str, Any]:
    """metav1.StatusDetails: Kubernetes puts the plural into `kind`."""
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}


def not_found(resource: Resource[Any], name: str) -> NotFound:
    return NotFound(f'{resource.group_resource} "{name}" not found', details=_details(resource, name))


def already_exists(resource: Resource[Any], name: str, *, leaving: bool = False) -> AlreadyExists:
    prefix = "object is being deleted: " if leaving else ""
    return AlreadyExists(f'{prefix}{resource.group_resource} "{name}" already exists', details=_details(resource, name))


def no_name_left(resource: Resource[Any], name: str) -> AlreadyExists:
    """Every name generated from generateName was taken."""
    return AlreadyExists(
        f'{resource.group_resource} "{name}" already exists, the server was not able to generate a unique name for the object',
        details=_details(resource, name),
        retry_after=1,
    )


def conflict(resource: Resource[Any], name: str, why: str = MODIFIED) -> Conflict:
    return Conflict(
        f'Operation cannot be fulfilled on {resource.group_resource} "{name}": {why}', details=_details(resource, name)
    )


def other_uid(resource: Resource[Any], name: str, asked: str, actual: str) -> Conflict:
    return conflict(resource, name, f"Precondition failed: UID in precondition: {asked}, UID in object meta: {actual}")


def delete_conflict(resource: Resource[Any], name: str, why: str) -> Conflict:
    """A conflict of a DELETE: its message and details have the kind where all others have the plural."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return Conflict(
        f'Operation cannot be fulfilled on {kind} "{name}": {why}',
        details={**_details(resource, name), "kind": resource.kind},
    )


def revision_required(resource: Resource[Any], name: str) -> Invalid:
    cause = Cause("FieldValueInvalid", "Invalid value: 0: must be specified for an update", "metadata.resourceVersion")
    return Invalid(
        f'{resource.group_resource} "{name}" is invalid: {cause.field}: {cause.message}',
        causes=(cause,),
        details=_details(resource, name),
    )


def revision_unreadable(text: Any) -> BadRequest:
    return BadRequest(f'resourceVersion: Invalid value: "{text}": must be a number that a server has handed out')


def revision_on_create() -> BadRequest:
    return BadRequest("resourceVersion should not be set on objects to be created")


def name_mismatch(found: str, expected: str) -> BadRequest:
    if not found:
        return BadRequest(f"the name of the object ({expected} based on URL) was undeterminable: name must be provided")
    return BadRequest(f"the name of the object ({found}) does not match the name on the URL ({expected})")


def namespace_mismatch() -> BadRequest:
    return BadRequest(NAMESPACE_MISMATCH)


def namespace_required(resource: Resource[Any]) -> BadRequest:
    return BadRequest(f"an empty namespace may not be set during creation of {resource.group_resource}")


def terminating(resource: Resource[Any], name: str, namespace: str) -> Forbidden:
    return Forbidden(
        f'{resource.group_resource} "{name}" is forbidden: unable to create new content in namespace {namespace} '
        "because it is being terminated",
        causes=(Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace"),),
        details=_details(resource, name),
    )


def exceeded_share(
    resource: Resource[Any], name: str, namespace: str, what: str, amounts: tuple[int, int, int], flag: str
) -> Forbidden:
    """A tenant exceeds its share. `amounts`: requested, used, and the current limit."""
    asked, held, most = amounts
    return Forbidden(
        f'{resource.group_resource} "{name}" is forbidden: exceeded share of namespace {namespace}, requested: {what}={asked}, '
        f"used: {what}={held}, limited: {what}={most}. Delete objects of this namespace, or ask the operator for more ({flag})",
        details=_details(resource, name),
    )


def too_fast(namespace: str, seconds: int) -> TooManyRequests:
    return TooManyRequests(
        f"namespace {namespace} has written too many bytes in the last moments, please write less, or try again in {seconds} s",
        retry_after=seconds,
    )


def try_again(resource: Resource[Any], name: str, why: str, seconds: int) -> TooManyRequests:
    """429: nothing was stored, but the object is valid. `why` continues a sentence whose subject is the object."""
    return TooManyRequests(
        f'{resource.group_resource} "{name}" {why}. Try again in {seconds} s',
        details=_details(resource, name),
        retry_after=seconds,
    )


def over_quota(resource: Resource[Any], name: str, why: str) -> Forbidden:
    return Forbidden(f'{resource.group_resource} "{name}" is forbidden: {why}', details=_details(resource, name))


def pod_rejected(name: str, why: str) -> Forbidden:
    return Forbidden(f'pods "{name}" is forbidden: pod rejected: {why}', details={"name": name, "kind": "pods"})


def undeletable(resource: Resource[Any], name: str) -> Forbidden:
    return Forbidden(
        f'{resource.group_resource} "{name}" is forbidden: this namespace may not be deleted',
        details=_details(resource, name),
    )


def unapplicable() -> Invalid:
    """A JSON patch whose test failed or whose path is absent: 422 without causes or an explanation, as in Kubernetes."""
    return Invalid(UNAPPLICABLE)


def unsupported_patch(supported: tuple[str, ...]) -> UnsupportedMedia:
    return UnsupportedMedia(
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(supported)}"
    )


def no_subresource() -> NotFound:
    return NotFound("the server could not find the requested resource")


def too_old(asked: Revision, oldest: Revision) -> Gone:
    return Gone(f"too old resource version: {asked} ({oldest})")


def too_large(asked: Revision, current: Revision) -> ServerTimeout:
    return ServerTimeout(
        f"Timeout: Too large resource version: {asked}, current: {current}",
        causes=(Cause("ResourceVersionTooLarge", "Too large resource version"),),
        retry_after=1,
    )


def bad_options(kind: str, cause: Cause) -> Invalid:
    return Invalid(
        f'{kind}.meta.k8s.io "" is invalid: {cause.field}: {cause.message}',
        causes=(cause,),
        details={"group": "meta.k8s.io", "kind": kind},
    )


class TokenExpired(Gone):
    """The revision of a continue token is compacted. `after` is a token that continues with the current state instead."""

    def __init__(self, after: str) -> None:
        super().__init__(_INCONSISTENT)
        self.after = after

    def body(self) -> dict[str, Any]:
        status = super().body()
        status["metadata"] = {"continue": self.after}
        return status

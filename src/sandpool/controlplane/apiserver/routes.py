"""The routing table: kinds by group, version and plural, and the subresources of each. Built once, read by all.

Discovery, OpenAPI and request parsing all read this table, so that what is published is what is served.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sandpool.model.kinds import ALL, NAMESPACES, OURS, PODS, SERVICE_ACCOUNTS
from sandpool.model.resource import Resource

COLLECTION_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
MEASURED_VERBS = ("get", "list")
_READ_WRITE = ("get", "patch", "update")
_STREAM = ("create", "get")


@dataclass(frozen=True, slots=True)
class Subresource:
    """One subresource of a kind."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""  # "": the kind of the resource itself
    group: str = ""  # of `kind`; without a version: the group of the resource itself
    version: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """One kind and where it is served."""

    resource: Resource[Any]
    custom: bool  # one of ours: served like a kind from a CRD, whose errors differ from those of built-in kinds
    verbs: tuple[str, ...]
    subresources: dict[str, Subresource]
    measured: bool = False  # computed on request and never stored
    label: str = field(init=False)  # the label of its requests in metrics

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.resource.group_resource)


@dataclass(frozen=True, slots=True)
class Review:
    """A review resource: a POST gets an answer, and nothing is stored."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


REVIEWS = (
    Review("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview"),
    Review("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    Review("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
)

OF_PODS = (
    Subresource("attach", _STREAM, "PodAttachOptions"),
    Subresource("binding", ("create",), "Binding"),
    Subresource("eviction", ("create",), "Eviction", "policy", "v1"),
    Subresource("exec", _STREAM, "PodExecOptions"),
    Subresource("log", ("get",)),
    Subresource("portforward", _STREAM, "PodPortForwardOptions"),
)
_EXTRA: dict[Resource[Any], tuple[Subresource, ...]] = {
    PODS: OF_PODS,
    NAMESPACES: (Subresource("finalize", ("update",)),),
    SERVICE_ACCOUNTS: (Subresource("token", ("create",), "TokenRequest", "authentication.k8s.io", "v1"),),
}


def _subresources(resource: Resource[Any]) -> dict[str, Subresource]:
    found = list(_EXTRA.get(resource, ()))
    if resource.has_status:
        found.append(Subresource("status", _READ_WRITE))
    if resource.scale is not None:
        found.append(Subresource("scale", _READ_WRITE, "Scale", "autoscaling", "v1"))
    return {sub.name: sub for sub in found}


def _route(resource: Resource[Any]) -> Route:
    # As in Kubernetes, namespaces have no deletecollection.
    verbs = tuple(v for v in COLLECTION_VERBS if not (resource == NAMESPACES and v == "deletecollection"))
    return Route(resource, resource in OURS, verbs, _subresources(resource))


class Routes:
    """The table. `groups` keeps the order of the kinds, which is the order of discovery."""

    def __init__(self, kinds: Iterable[Resource[Any]] = ALL, measured: Iterable[Resource[Any]] = ()) -> None:
        self.kinds: dict[tuple[str, str], dict[str, Route]] = {}
        self.reviews: dict[tuple[str, str], dict[str, Review]] = {}
        for resource in kinds:
            self.kinds.setdefault((resource.group, resource.version), {})[resource.plural] = _route(resource)
        for resource in measured:
            route = Route(resource, custom=False, verbs=MEASURED_VERBS, subresources={}, measured=True)
            self.kinds.setdefault((resource.group, resource.version), {})[resource.plural] = route
        for review in REVIEWS:
            self.reviews.setdefault((review.group, review.version), {})[review.plural] = review

    @property
    def groups(self) -> tuple[tuple[str, str], ...]:
        """Every (group, version) that is served, reviews included; the core group first."""
        found = dict.fromkeys((*self.kinds, *self.reviews))
        return tuple(sorted(found, key=lambda entry: entry[0] != ""))

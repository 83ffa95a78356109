"""SelfSubjectReview, SelfSubjectAccessReview and SelfSubjectRulesReview, answered from the rules in auth.py."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sandpool.controlplane.apiserver.auth import (
    CLUSTER_OWNED,
    DISCOVERY_PATHS,
    OPERATOR_OWNED,
    PUBLIC_PATHS,
    READ_VERBS,
    SELF_REVIEWS,
    Attributes,
    User,
    allowed,
)
from sandpool.controlplane.apiserver.body import decode_object
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.query import write_options
from sandpool.controlplane.apiserver.request import HISTORY_ROOT
from sandpool.controlplane.apiserver.response import Response, json_response
from sandpool.controlplane.apiserver.routes import Routes
from sandpool.kube.errors import BadRequest, Cause, Invalid, MethodNotAllowed

Json = dict[str, Any]


class Reviews:
    """Handler of self reviews."""

    def __init__(self, limits: Limits, now: Callable[[], datetime]) -> None:
        self._limits = limits
        self._now = now

    async def serve(self, call: Call) -> Response:
        review = call.info.review
        assert review is not None
        if call.info.verb != "create" or call.info.name:
            raise MethodNotAllowed("the server does not allow this method on the requested resource")
        write_options(call.params, "CreateOptions")
        raw = await call.exchange.read(self._limits.body)
        body = decode_object(raw, call.media, review.kind, self._limits.depth)
        if (
            body.get("kind", review.kind) != review.kind
            or body.get("apiVersion", review.api_version) != review.api_version
        ):
            raise BadRequest(
                f'{body.get("kind")} in version "{body.get("apiVersion")}" cannot be handled as a {review.kind}'
            )
        answer: Json = {"kind": review.kind, "apiVersion": review.api_version, "metadata": {}}
        spec = _section(body, "spec")
        if review.kind == "SelfSubjectReview":
            created = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            answer |= {"metadata": {"creationTimestamp": created}, "status": {"userInfo": user_info(call.user)}}
        elif review.kind == "SelfSubjectAccessReview":
            answer |= {"spec": spec, "status": {"allowed": allowed(call.user, wanted(spec))}}
        else:
            answer |= {"spec": {}, "status": rules(call.user, _namespace(spec))}
        return json_response(answer, 201)


def _section(body: Json, name: str) -> Json:
    section = body.get(name)
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise BadRequest(f"{name}: must be an object")
    return section


def _namespace(spec: Json) -> str:
    namespace = spec.get("namespace")
    if not isinstance(namespace, str) or not namespace:
        raise BadRequest("no namespace on request")
    return namespace


def user_info(user: User) -> Json:
    info: Json = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    if user.extra:
        info["extra"] = user.extra
    return info


def wanted(spec: Json) -> Attributes:
    """The attributes that an access review asks about: either a resource or a path."""
    resource, path = _section(spec, "resourceAttributes"), _section(spec, "nonResourceAttributes")
    if ("resourceAttributes" in spec) == ("nonResourceAttributes" in spec):
        why = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise Invalid(
            f'.authorization.k8s.io "" is invalid: spec.resourceAttributes: {why}',
            causes=(Cause("FieldValueInvalid", why, "spec.resourceAttributes"),),
            details={"group": "authorization.k8s.io"},
        )
    fields = resource or path
    for name, value in fields.items():
        if name not in {"fieldSelector", "labelSelector"} and not isinstance(value, str):
            raise BadRequest(f"spec: {name} must be text")
    if "nonResourceAttributes" in spec:
        return Attributes(path.get("verb", ""), path.get("path", ""))
    return Attributes(
        resource.get("verb", ""),
        "",
        resource.get("group", ""),
        resource.get("resource", "") or "*",
        resource.get("subresource", ""),
        resource.get("namespace", ""),
        resource.get("name", ""),
    )


def _of_tenants() -> list[Json]:
    """What auth.py allows a service account in its namespace, as rules."""
    namespaced = [route for groups in Routes().kinds.values() for route in groups.values() if route.resource.namespaced]
    groups = sorted({route.resource.group for route in namespaced} - {""})
    written: list[str] = []
    read = [f"*/{name}" for name in CLUSTER_OWNED]
    for route in namespaced:
        plural = route.resource.plural
        if not route.resource.group:
            written += [f"{plural}/{name}" for name in route.subresources if name not in CLUSTER_OWNED]
            (read if plural in OPERATOR_OWNED else written).append(plural)
    return [
        {"verbs": ["*"], "apiGroups": groups, "resources": ["*"]},
        {"verbs": ["*"], "apiGroups": [""], "resources": sorted(written)},
        {"verbs": sorted(READ_VERBS), "apiGroups": [""], "resources": sorted(read)},
    ]


def rules(user: User, namespace: str) -> Json:
    """Everything that a user may do in a namespace."""
    about_self = [
        {"verbs": ["create"], "apiGroups": [group], "resources": list(resources)}
        for group, resources in sorted(SELF_REVIEWS.items())
    ]
    readable = [path for root in DISCOVERY_PATHS for path in ((root,) if root in PUBLIC_PATHS else (root, root + "/*"))]
    resource_rules: list[Json] = []
    paths: list[Json] = [{"verbs": ["get"], "nonResourceURLs": readable}]
    if user.admin:
        resource_rules.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
        paths.insert(0, {"verbs": ["*"], "nonResourceURLs": ["*"]})
    elif user.namespace == namespace:
        resource_rules += _of_tenants()
        paths.append({"verbs": ["get"], "nonResourceURLs": [f"{HISTORY_ROOT}/{namespace}/*"]})
    return {"resourceRules": [*resource_rules, *about_self], "nonResourceRules": paths, "incomplete": False}

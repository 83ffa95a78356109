"""What a user may do. Pure.

The admin may do everything. A service account may do with the objects of its own namespace what Kubernetes' role `edit` lets it do:
everything but to write the status of pods and of other core kinds, to place pods, and to change the quotas that hold for it. It may read that namespace itself, the
stories of its objects and discovery, and ask about itself; nothing else.
"""

from __future__ import annotations

import msgspec

from sandpool.controlplane.apiserver.identity import User
from sandpool.controlplane.apiserver.request import RequestInfo, story_of
from sandpool.kube.errors import Forbidden

OPEN = frozenset({"/healthz", "/livez", "/readyz", "/version"})
"""Paths that need no credentials."""
READABLE = ("/api", "/apis", "/openapi", *sorted(OPEN))
"""Paths, and everything below them, that every authenticated user may get."""
SELF_REVIEWS = {
    "authentication.k8s.io": ("selfsubjectreviews",),
    "authorization.k8s.io": ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
}


READING = frozenset({"get", "list", "watch"})
GIVEN = frozenset({"resourcequotas"})
"""What an operator decides about a namespace: those who live in it read it."""
FACTS = frozenset({"status", "binding"})
"""Subresources of core kinds in which the cluster says what is so. Whoever could write them could hide what a pod uses."""


class Attributes(msgspec.Struct, frozen=True, gc=False):
    """One thing that somebody wants to do: with a resource, or (no resource) with a path."""

    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def attributes(info: RequestInfo) -> Attributes:
    return Attributes(info.verb, info.path, info.group, info.plural, info.subresource, info.namespace, info.name)


def open_to_all(path: str) -> bool:
    return path in OPEN or path.startswith(("/healthz/", "/livez/", "/readyz/", "/version/"))


def allowed(user: User, wanted: Attributes) -> bool:
    if user.admin:
        return True
    if not wanted.resource:
        return wanted.verb == "get" and (_readable(wanted.path) or _own_story(user, wanted.path))
    if wanted.resource in SELF_REVIEWS.get(wanted.group, ()):
        return wanted.verb == "create"
    if not user.namespace or wanted.namespace != user.namespace:
        return False
    if wanted.resource == "namespaces" and not wanted.group:
        return wanted.verb == "get" and wanted.name == user.namespace and not wanted.subresource
    if not wanted.group and (wanted.subresource in FACTS or wanted.resource in GIVEN):
        return wanted.verb in READING
    return True


def _readable(path: str) -> bool:
    return any(path == root or path.startswith(root + "/") for root in READABLE)


def _own_story(user: User, path: str) -> bool:
    """No story is without a namespace, so a user without one owns none."""
    story = story_of(path)
    return story is not None and story.namespace == user.namespace


def authorise(user: User, info: RequestInfo) -> None:
    if not user.admin:
        wanted = attributes(info)
        if not allowed(user, wanted):
            raise refusal(user, wanted)


def refusal(user: User, wanted: Attributes) -> Forbidden:
    if not wanted.resource:
        return Forbidden(f'forbidden: User "{user.name}" cannot {wanted.verb} path "{wanted.path}"')
    group_resource = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    what = f'{group_resource} "{wanted.name}"' if wanted.name else group_resource
    resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
    scope = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    details = {"kind": wanted.resource}
    if wanted.group:
        details = {"group": wanted.group, **details}
    if wanted.name:
        details = {"name": wanted.name, **details}
    return Forbidden(
        f'{what} is forbidden: User "{user.name}" cannot {wanted.verb} resource "{resource}" '
        f'in API group "{wanted.group}" {scope}',
        details=details,
    )

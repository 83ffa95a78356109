"""Callers as a Kubernetes API server knows them: who a token belongs to by a TokenReview, what they may do by a SubjectAccessReview.

To use a sandbox is the verb `create` on `sandboxes/connect`: a right of its own, so that reading sandboxes or making them does not
bring it along. RBAC grants it by namespace.
"""

from __future__ import annotations

from typing import Any

from sandpool.kube.api import Api
from sandpool.model.kinds import SANDBOXES
from sandpool.model.raw import RawObject
from sandpool.model.resource import Resource
from sandpool.router.ports import Caller

TOKEN_REVIEWS: Resource[RawObject] = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", RawObject, namespaced=False
)
ACCESS_REVIEWS: Resource[RawObject] = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", RawObject, namespaced=False
)
VERB = "create"
SUBRESOURCE = "connect"


class Reviews:
    """An Authority. With `audiences`, only tokens that were made for one of them count, not those for the API server."""

    def __init__(self, api: Api, audiences: tuple[str, ...] = ()) -> None:
        self._api = api
        self._audiences = audiences

    async def caller(self, token: str) -> Caller | None:
        answer = await self._api.create(TOKEN_REVIEWS, token_review(token, self._audiences))
        return reviewed(answer.body, self._audiences)

    async def may_use(self, caller: Caller, namespace: str) -> bool:
        answer = await self._api.create(ACCESS_REVIEWS, access_review(caller, namespace))
        status = answer.body.get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True


def token_review(token: str, audiences: tuple[str, ...]) -> dict[str, Any]:
    return {"spec": {"token": token, **({"audiences": list(audiences)} if audiences else {})}}


def reviewed(body: dict[str, Any], audiences: tuple[str, ...]) -> Caller | None:
    """Whom a server says that a token belongs to. One that does not know audiences answers without them: then nobody is known,
    because the token may be meant for somebody else."""
    status = body.get("status") or {}
    user = status.get("user") or {}
    name = user.get("username") or ""
    if status.get("authenticated") is not True or not name:
        return None
    if audiences and not set(audiences) & set(status.get("audiences") or ()):
        return None
    extra = tuple(sorted((key, tuple(values or ())) for key, values in (user.get("extra") or {}).items()))
    return Caller(name, user.get("uid") or "", tuple(user.get("groups") or ()), extra)


def access_review(caller: Caller, namespace: str) -> dict[str, Any]:
    attributes = {
        "group": SANDBOXES.group,
        "resource": SANDBOXES.plural,
        "subresource": SUBRESOURCE,
        "verb": VERB,
        "namespace": namespace,
    }
    who: dict[str, Any] = {"user": caller.name, "groups": list(caller.groups)}
    if caller.uid:
        who["uid"] = caller.uid
    if caller.extra:
        who["extra"] = {key: list(values) for key, values in caller.extra}
    return {"spec": {**who, "resourceAttributes": attributes}}

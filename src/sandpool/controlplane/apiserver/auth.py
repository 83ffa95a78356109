"""Authentication and authorization: which user a bearer token belongs to, and what that user may do.

The admin may do everything. A service account may do in its own namespace what Kubernetes' role `edit` allows: everything except writing the
status of pods and other core kinds, binding pods, and changing quotas. It may also read its Namespace object, the reconcile history of its
objects and discovery, and create self reviews; nothing else. Tokens are compared in constant time and never logged.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

import msgspec

from sandpool.base.shares import NOBODY, OPERATOR
from sandpool.controlplane.apiserver.access.tokens import Claims, prove
from sandpool.controlplane.apiserver.request import RequestInfo, history_path
from sandpool.controlplane.objects.objects import Objects
from sandpool.kube.errors import Forbidden, NotFound, Unauthorized
from sandpool.model.kinds import SERVICE_ACCOUNTS

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
REMEMBERED: Final = 1024  # verified tokens
PUBLIC_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
"""Paths that need no credentials."""
DISCOVERY_PATHS = ("/api", "/apis", "/openapi", *sorted(PUBLIC_PATHS))
"""Paths, and everything below them, that every authenticated user may get."""
SELF_REVIEWS = {
    "authentication.k8s.io": ("selfsubjectreviews",),
    "authorization.k8s.io": ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
}
READ_VERBS = frozenset({"get", "list", "watch"})
OPERATOR_OWNED = frozenset({"resourcequotas"})
"""Resources that only the operator may change: users of a namespace may read them."""
CLUSTER_OWNED = frozenset({"status", "binding"})
"""Subresources of core kinds that only the cluster may write. A user who could write them could hide what a pod uses."""


class User(msgspec.Struct, frozen=True, gc=False):
    """An authenticated user. `namespace` is the only namespace it may use; empty: it may do everything. Its requests are charged to
    `tenant`."""

    name: str
    uid: str
    groups: tuple[str, ...]
    namespace: str = ""
    extra: dict[str, list[str]] = {}
    tenant: str = OPERATOR

    @property
    def admin(self) -> bool:
        return MASTERS in self.groups


ANONYMOUS = User("system:anonymous", "", ("system:unauthenticated",), tenant=NOBODY)
ADMIN = User("kubernetes-admin", "kubernetes-admin", (MASTERS, AUTHENTICATED))


def service_account(namespace: str, name: str, uid: str, token_id: str) -> User:
    return User(
        f"system:serviceaccount:{namespace}:{name}",
        uid,
        ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED),
        namespace,
        {"authentication.kubernetes.io/credential-id": [f"JTI={token_id}"]},
        namespace,
    )


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""


class _Account(msgspec.Struct, gc=False):
    metadata: _Metadata


_ACCOUNT = msgspec.json.Decoder(_Account)


class Authenticator:
    """Finds the user of a token. Verified signatures are cached; expiry and account are checked each time. `now` is seconds since the epoch."""

    def __init__(self, admin_token: str, signing_key: bytes, objects: Objects, now: Callable[[], float]) -> None:
        self._admin = admin_token.encode()
        self._key = signing_key
        self._objects = objects
        self._now = now
        self._proved: dict[bytes, Claims] = {}

    def authenticate(self, header: bytes | None) -> User:
        """The user of an Authorization header; raises Unauthorized."""
        if header is not None:
            scheme, _, token = header.partition(b" ")
            token = token.strip()
            if token and scheme.lower() == b"bearer":
                if hmac.compare_digest(token, self._admin):
                    return ADMIN
                user = self._service_account(token)
                if user is not None:
                    return user
        raise Unauthorized("Unauthorized")

    def _service_account(self, token: bytes) -> User | None:
        claims = self._claims(token)
        if claims is None or not claims.good_at(self._now()):
            return None
        bound = claims.kubernetes
        try:
            record = self._objects.get(SERVICE_ACCOUNTS, bound.namespace, bound.serviceaccount.name)
        except NotFound:
            return None
        uid = _ACCOUNT.decode(record.value).metadata.uid
        if uid != bound.serviceaccount.uid:  # the account was deleted and created again
            return None
        return service_account(bound.namespace, bound.serviceaccount.name, uid, claims.jti)

    def _claims(self, token: bytes) -> Claims | None:
        digest = hashlib.sha256(token).digest()
        known = self._proved.get(digest)
        if known is not None:
            return known
        claims = prove(token.decode("latin-1"), self._key)
        if claims is not None:
            if len(self._proved) >= REMEMBERED:
                self._proved.pop(next(iter(self._proved)))
            self._proved[digest] = claims
        return claims


class Attributes(msgspec.Struct, frozen=True, gc=False):
    """What a request wants to do with a resource or, without one, with a path: Kubernetes' authorizer attributes."""

    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def attributes(info: RequestInfo) -> Attributes:
    return Attributes(info.verb, info.path, info.group, info.plural, info.subresource, info.namespace, info.name)


def is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith(("/healthz/", "/livez/", "/readyz/", "/version/"))


def allowed(user: User, wanted: Attributes) -> bool:
    if user.admin:
        return True
    if not wanted.resource:
        return wanted.verb == "get" and (_readable(wanted.path) or _own_history(user, wanted.path))
    if wanted.resource in SELF_REVIEWS.get(wanted.group, ()):
        return wanted.verb == "create"
    if not user.namespace or wanted.namespace != user.namespace:
        return False
    if wanted.resource == "namespaces" and not wanted.group:
        return wanted.verb == "get" and wanted.name == user.namespace and not wanted.subresource
    if not wanted.group and (wanted.subresource in CLUSTER_OWNED or wanted.resource in OPERATOR_OWNED):
        return wanted.verb in READ_VERBS
    return True


def _readable(path: str) -> bool:
    return any(path == root or path.startswith(root + "/") for root in DISCOVERY_PATHS)


def _own_history(user: User, path: str) -> bool:
    """Every history path has a namespace, so a user without one owns none."""
    asked = history_path(path)
    return asked is not None and asked.namespace == user.namespace


def authorize(user: User, info: RequestInfo) -> None:
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

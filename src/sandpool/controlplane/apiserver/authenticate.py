"""Who a bearer token belongs to. Tokens are compared in constant time and never logged."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

import msgspec

from sandpool.controlplane.apiserver.access.tokens import Claims, prove
from sandpool.controlplane.apiserver.identity import ADMIN, User, service_account
from sandpool.controlplane.objects.objects import Objects
from sandpool.kube.errors import NotFound, Unauthorized
from sandpool.model.kinds import SERVICE_ACCOUNTS

REMEMBERED: Final = 1024


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""


class _Account(msgspec.Struct, gc=False):
    metadata: _Metadata


_ACCOUNT = msgspec.json.Decoder(_Account)


class Authenticator:
    """`now` is seconds since the epoch. Proved signatures are remembered; time and account are asked for anew each time."""

    def __init__(self, admin_token: str, signing_key: bytes, objects: Objects, now: Callable[[], float]) -> None:
        self._admin = admin_token.encode()
        self._key = signing_key
        self._objects = objects
        self._now = now
        self._proved: dict[bytes, Claims] = {}

    def authenticate(self, header: bytes | None) -> User:
        """The user that an Authorization header stands for; raises Unauthorized."""
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
        if uid != bound.serviceaccount.uid:  # deleted and made again: another account
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

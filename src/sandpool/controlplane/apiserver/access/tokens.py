"""Service-account tokens: JSON Web Tokens signed with HMAC-SHA256 by a key that never leaves the data directory.

A token names a namespace, an account and the account's uid, so it becomes invalid with the account. Only tokens with exactly our
header are decoded, so the sender cannot choose the algorithm.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec

AUDIENCE = "https://kubernetes.default.svc"
ISSUER = "https://kubernetes.default.svc"
LONGEST = 8192


class _Account(msgspec.Struct, frozen=True, gc=False):
    name: str
    uid: str


class _Kubernetes(msgspec.Struct, frozen=True, gc=False):
    namespace: str
    serviceaccount: _Account


class Claims(msgspec.Struct, frozen=True, gc=False):
    """The claims of a token whose signature was verified."""

    aud: list[str]
    exp: int
    iat: int
    iss: str
    jti: str
    nbf: int
    sub: str
    kubernetes: _Kubernetes = msgspec.field(name="kubernetes.io")

    def good_at(self, now: float) -> bool:
        return self.nbf <= now < self.exp


def account_claims(
    namespace: str, name: str, uid: str, audiences: list[str], issued: int, expires: int, token_id: str
) -> Claims:
    return Claims(
        aud=audiences,
        exp=expires,
        iat=issued,
        iss=ISSUER,
        jti=token_id,
        nbf=issued,
        sub=f"system:serviceaccount:{namespace}:{name}",
        kubernetes=_Kubernetes(namespace, _Account(name, uid)),
    )


def _segment(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


_HEADER = _segment(b'{"alg":"HS256","typ":"JWT"}')
_DECODER = msgspec.json.Decoder(Claims)


def _signature(signed: str, key: bytes) -> str:
    return _segment(hmac.digest(key, signed.encode(), hashlib.sha256))


def sign(claims: Claims, key: bytes) -> str:
    signed = f"{_HEADER}.{_segment(msgspec.json.encode(claims))}"
    return f"{signed}.{_signature(signed, key)}"


def prove(token: str, key: bytes) -> Claims | None:
    """The claims of a token that this server signed, or None. The caller checks expiry."""
    if len(token) > LONGEST or not token.isascii():
        return None
    header, _, rest = token.partition(".")
    payload, dot, signature = rest.partition(".")
    if header != _HEADER or not dot:
        return None
    if not hmac.compare_digest(signature, _signature(f"{header}.{payload}", key)):
        return None
    try:
        claims = _DECODER.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (binascii.Error, msgspec.DecodeError):
        return None
    return claims if AUDIENCE in claims.aud and claims.iss == ISSUER else None

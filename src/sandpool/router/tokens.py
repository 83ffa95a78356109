"""Signed tokens for one sandbox: their format, their verification, and requests for them. Pure but for reading keys.

A token is `v1.PAYLOAD.MAC`, both in base64url without padding, as the contract has them. The payload is JSON: `ns`, `name`, `exp`
(whole seconds, exclusive), and two optional extensions: `uid`, for exactly this object, and `port`, for this port only. The payload is
decoded only after the signature was verified, in constant time, and a token has only one valid encoding.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

import msgspec

from sandpool.base.secret import Secret
from sandpool.kube.config import read_text
from sandpool.kube.errors import ConfigError
from sandpool.model.metadata import Key, Uid
from sandpool.model.names import dns_label
from sandpool.model.times import seconds as in_seconds
from sandpool.router.answers import Refusal, Word, invalid
from sandpool.wire.headers import DEFAULT_NAMESPACE
from sandpool.wire.paths import PORT_URL

VERSION: Final = "v1."
SHORTEST_KEY: Final = 32
LONGEST: Final = 2048
"""Characters of a token. The longest that we make has about 600."""
_CONTEXT: Final = b"agent-sandbox/scoped-token/v1."
_SHAPE = re.compile(r"v1\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{43})")


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, rename={"namespace": "ns", "expires": "exp"}):
    """What a token allows."""

    namespace: str
    name: str
    expires: int
    uid: str = ""
    port: int | None = None


_payload = msgspec.json.Decoder(Scope)


class Signer:
    """Signs with the first key and accepts all of them, so that a key can be replaced while tokens are in use. Without keys it signs
    and accepts no tokens."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if any(len(key) < SHORTEST_KEY for key in keys):
            raise ValueError(f"a key has at least {SHORTEST_KEY} bytes")
        self._keys = tuple(keys)

    @property
    def able(self) -> bool:
        return bool(self._keys)

    def sign(self, scope: Scope) -> str:
        payload = _encoded(msgspec.json.encode(scope))
        return f"{VERSION}{payload}.{_encoded(_mac(self._keys[0], payload))}"

    def read(self, token: str, now: float) -> Scope | None:
        """What a token allows at `now`, in seconds since the epoch; None if it is invalid or expired."""
        found = _SHAPE.fullmatch(token) if len(token) <= LONGEST else None
        if found is None:
            return None
        payload, mac = found.groups()
        shown = mac.encode()
        # Every key is tried, so that the time does not reveal which one matches.
        proved = [hmac.compare_digest(_encoded(_mac(key, payload)).encode(), shown) for key in self._keys]
        if not any(proved):
            return None
        scope = _decoded(payload)
        return scope if scope is not None and now < scope.expires else None


def read_keys(paths: Sequence[Path]) -> Signer:
    """Keys from files, stripped of white space. From a directory, such as a mounted Secret, every file, by name; a missing one has
    no keys."""
    hint = "make one: `openssl rand -base64 48 > FILE`"
    keys = []
    for path in chain.from_iterable(map(_files, paths)):
        key = Secret(read_text(path, "the key of scoped tokens", hint).strip())
        if len(key.reveal().encode()) < SHORTEST_KEY:
            raise ConfigError(f"{path}: a key of scoped tokens has at least {SHORTEST_KEY} bytes; {hint}")
        keys.append(key)
    return Signer([key.reveal().encode() for key in keys])


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if not file.name.startswith("."))
    return [path]


def _mac(key: bytes, payload: str) -> bytes:
    return hmac.new(key, _CONTEXT + payload.encode(), hashlib.sha256).digest()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(payload: str) -> Scope | None:
    try:
        data = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        scope = _payload.decode(data)
    except (ValueError, msgspec.DecodeError):  # the key can sign anything
        return None
    sound = scope.namespace and scope.name and (scope.port is None or 1 <= scope.port <= 65535)
    return scope if sound else None


LONGEST_BODY: Final = 4096
DEFAULT_LIFETIME: Final = 3600  # seconds
LONGEST_LIFETIME: Final = 24 * 3600


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sandbox: str
    namespace: str = DEFAULT_NAMESPACE
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    uid: str = ""  # of the Sandbox; empty: any of this name
    seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_LIFETIME)] = DEFAULT_LIFETIME

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.sandbox)


_decoder = msgspec.json.Decoder(TokenRequest)


def parse_token_request(body: bytes) -> TokenRequest | Refusal:
    if len(body) > LONGEST_BODY:
        return Refusal(413, Word.TOO_LARGE, f"a token request has at most {LONGEST_BODY} bytes")
    try:
        wanted = _decoder.decode(body)
    except msgspec.DecodeError as error:
        text = f"the body is not a token request: {error}. Write for example " + '{"sandbox": "NAME", "port": 8000}'
        return invalid("", text)
    for field, name in (("sandbox", wanted.sandbox), ("namespace", wanted.namespace)):
        if wrong := dns_label(name):
            return invalid("", f"{field} cannot be a name: {wrong[0]}")
    return wanted


def granted_scope(wanted: TokenRequest, uid: Uid, now: datetime, limit: int | None) -> Scope:
    """`limit`: when the caller's own token expires; the new one never lasts longer."""
    expires = int(now.timestamp()) + wanted.seconds
    return Scope(wanted.namespace, wanted.sandbox, min(expires, limit or expires), uid, wanted.port)


def token_response(token: str, scope: Scope, base: str) -> dict[str, object]:
    body: dict[str, object] = {"token": token, "expires": in_seconds(datetime.fromtimestamp(scope.expires, UTC))}
    if scope.port is not None:
        body["url"] = f"{base}{PORT_URL}/{token}/"
    return body

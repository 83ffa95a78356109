"""Signed tokens for one sandbox: `v1.PAYLOAD.MAC`, both in base64url without padding, as the contract has them.

The payload is JSON: `ns`, `name`, `exp` (whole seconds, exclusive), and ours, both optional: `uid`, of this very object, and `port`,
at this port alone. A token is read only after its signature has proved right, in constant time, and has one spelling only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from sandpool.base.secret import Secret
from sandpool.kube.errors import ConfigError
from sandpool.kube.files import read_text

VERSION: Final = "v1."
SHORTEST_KEY: Final = 32
LONGEST: Final = 2048
"""Characters of a token. The longest that we make has about 600."""
_CONTEXT: Final = b"agent-sandbox/scoped-token/v1."
_SHAPE = re.compile(r"v1\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{43})")


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, rename={"namespace": "ns", "expires": "exp"}):
    """What a token is good for."""

    namespace: str
    name: str
    expires: int
    uid: str = ""
    port: int | None = None


_payload = msgspec.json.Decoder(Scope)


class Signer:
    """Signs with the first key and accepts all of them, so that a key can be replaced while tokens are in use. Without any, it makes
    no tokens and knows none."""

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
        """What a token is good for at `now`, in seconds since the epoch; None: nothing."""
        found = _SHAPE.fullmatch(token) if len(token) <= LONGEST else None
        if found is None:
            return None
        payload, mac = found.groups()
        shown = mac.encode()
        # Every key is tried, so that the time says nothing about which one fits.
        proved = [hmac.compare_digest(_encoded(_mac(key, payload)).encode(), shown) for key in self._keys]
        if not any(proved):
            return None
        scope = _decoded(payload)
        return scope if scope is not None and now < scope.expires else None


def read_keys(paths: Sequence[Path]) -> Signer:
    """Keys from files, without the white space around them. Of a folder, as a Secret is mounted, every file, by name; one that is
    not there has none."""
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
    except (ValueError, msgspec.DecodeError):  # whoever has the key can sign anything
        return None
    sound = scope.namespace and scope.name and (scope.port is None or 1 <= scope.port <= 65535)
    return scope if sound else None

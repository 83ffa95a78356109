"""Tokens for one sandbox, on request: what is asked for, and the token that answers it. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from sandpool.model.metadata import Key, Uid
from sandpool.model.names import dns_label
from sandpool.model.times import seconds as in_seconds
from sandpool.router.refusals import Refusal, Word, invalid
from sandpool.router.tokens import Scope
from sandpool.wire.headers import DEFAULT_NAMESPACE
from sandpool.wire.paths import PORT_URL

LONGEST_BODY: Final = 4096
USUAL: Final = 3600
LONGEST: Final = 24 * 3600


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sandbox: str
    namespace: str = DEFAULT_NAMESPACE
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    uid: str = ""  # of the Sandbox that is meant; empty: whichever has the name
    seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST)] = USUAL

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.sandbox)


_wish = msgspec.json.Decoder(Wish)


def read_wish(body: bytes) -> Wish | Refusal:
    if len(body) > LONGEST_BODY:
        return Refusal(413, Word.TOO_LARGE, f"a wish for a token has at most {LONGEST_BODY} bytes")
    try:
        wish = _wish.decode(body)
    except msgspec.DecodeError as error:
        text = f"the body is no wish for a token: {error}. Write for example " + '{"sandbox": "NAME", "port": 8000}'
        return invalid("", text)
    for field, name in (("sandbox", wish.sandbox), ("namespace", wish.namespace)):
        if wrong := dns_label(name):
            return invalid("", f"{field} cannot be a name: {wrong[0]}")
    return wish


def granted(wish: Wish, uid: Uid, now: datetime, limit: int | None) -> Scope:
    """`limit`: when the token ends that was shown for it; nobody extends their own."""
    expires = int(now.timestamp()) + wish.seconds
    return Scope(wish.namespace, wish.sandbox, min(expires, limit or expires), uid, wish.port)


def told(token: str, scope: Scope, base: str) -> dict[str, object]:
    body: dict[str, object] = {"token": token, "expires": in_seconds(datetime.fromtimestamp(scope.expires, UTC))}
    if scope.port is not None:
        body["url"] = f"{base}{PORT_URL}/{token}/"
    return body

"""Refuses DNS rebinding, where the page of a hostile site lets its own name resolve to 127.0.0.1 and talks to local servers.

Accepted as Host are only names of this machine and configured ones; as Origin, only pages from those.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from sandpool.router.answers import Refusal, Word
from sandpool.router.values import Request

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(\d{1,5}))?", re.IGNORECASE)
# Browsers send the second with every request; JavaScript runtimes, which are programs, send other Sec-Fetch headers. Old browsers
# send none of them, but an Origin.
_BROWSER = (b"origin", b"sec-fetch-site", b"referer")


@dataclass(frozen=True, slots=True)
class Allowed:
    """In addition to those of this machine. Hosts with or without a port; origins with their scheme. Lower case."""

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()


def foreign(request: Request, allowed: Allowed, *, secure: bool) -> Refusal | None:
    host = _text(request.header(b"host"))
    if not _known_host(host, allowed):
        return Refusal(
            403,
            Word.FOREIGN,
            f"the Host {host[:100]!r} is not a name of this machine. Use 127.0.0.1 or localhost, or allow it with "
            "--allowed-host",
        )
    origin = request.header(b"origin")
    if origin is not None and not _known_origin(_text(origin), host, allowed, secure=secure):
        return Refusal(
            403,
            Word.FOREIGN,
            f"pages of {_text(origin)[:100]!r} may not use this router. Allow them with --allowed-origin",
        )
    return None


def from_browser(request: Request) -> bool:
    """Whether a page in a browser sent it. Then it needs a token: the connection alone proves only whose browser it is."""
    return any(request.header(name) is not None for name in _BROWSER)


def loopback(address: str) -> bool:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def forwarded(address: str) -> bool:
    """Whether a kubelet may connect from there when it forwards a port of a pod. Other loopback addresses are those of a mesh's proxy,
    which forwards anybody."""
    return address in ("127.0.0.1", "::1", "::ffff:127.0.0.1")


def well_formed(host: str) -> bool:
    """Whether a Host can be part of a URL."""
    return _HOST.fullmatch(host) is not None


def _known_host(host: str, allowed: Allowed) -> bool:
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1].strip("[]")
    if name == "localhost" or name.endswith(".localhost") or loopback(name):
        return True
    return host in allowed.hosts or found[1] in allowed.hosts


def _known_origin(origin: str, host: str, allowed: Allowed, *, secure: bool) -> bool:
    if origin in allowed.origins:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    own = "https" if secure else "http"
    return parts.scheme == own and parts.netloc == host and origin == f"{own}://{host}"


def _text(value: bytes | None) -> str:
    return (value or b"").decode("latin-1").lower()

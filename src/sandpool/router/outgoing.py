"""Rewrites heads: a request as the sandbox gets it, a response as the client gets it. Pure.

Framing headers are never copied: they are written from the parsed length, so both sides agree about the bytes.

A browser sends the cookies of a host to all its ports, so cookies of other programs would reach the sandbox, and the other way
round. Therefore the router gives the cookies of a sandbox a name prefix and a path of their own, and forwards no others to it.
"""

from __future__ import annotations

import hashlib
import re
from http import HTTPStatus

from sandpool.router.head import RequestHead, ResponseHead
from sandpool.router.values import Admitted, Headers, Peer, Request

_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
    }
    | {b"transfer-encoding", b"upgrade", b"content-length", b"x-request-id", b"http2-settings"}
)
_OURS = _HOP | {b"host", b"authorization", b"expect", b"forwarded", b"x-real-ip"}
_OURS |= {b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}
_OF_THE_WHOLE_SITE = frozenset(
    {b"alt-svc", b"clear-site-data", b"strict-transport-security", b"service-worker-allowed", b"public-key-pins"}
)
"""Response headers that a sandbox may not set, because they would apply to the whole address that it shares with others."""
_ADDRESS = re.compile(r"[0-9A-Fa-f]*[.:][0-9A-Fa-f.:]*(?:%\w+)?")
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


def request_head(head: RequestHead, request: Request, peer: Peer, admitted: Admitted, upgrade: bytes) -> bytes:
    unwanted = _OURS | admitted.drop | head.nominated
    lines = [b"%s %s HTTP/1.1" % (head.method, admitted.path)]
    lines.append(b"host: " + own_host(admitted))
    headers = _own_cookies(head.headers, admitted.prefix) if admitted.prefix else head.headers
    lines += [b"%s: %s" % field for field in headers if field[0] not in unwanted]
    lines += [b"%s: %s" % field for field in admitted.add if field[0] != b"host"]
    host = request.header(b"host")
    if host:
        lines.append(b"x-forwarded-host: " + host)
    if _ADDRESS.fullmatch(peer.address):
        lines.append(b"x-forwarded-for: " + peer.address.encode())
    lines.append(b"x-forwarded-proto: https" if peer.secure else b"x-forwarded-proto: http")
    lines.append(b"x-request-id: " + request.id.encode())
    if head.chunked:
        lines.append(b"transfer-encoding: chunked")
    elif head.length is not None:
        lines.append(b"content-length: %d" % head.length)
    if head.expects and not head.bodyless:
        lines.append(b"expect: 100-continue")
    if upgrade:
        lines += [b"connection: upgrade", b"upgrade: " + upgrade]
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


def response_head(response: ResponseHead, request: Request, admitted: Admitted, extra: Headers) -> bytes:
    """`extra` has the framing of the body and whether the connection is kept."""
    unwanted = _HOP | _OF_THE_WHOLE_SITE | response.nominated
    lines = [status_line(response.status, response.reason)]
    for name, value in response.headers:
        if name in unwanted:
            continue
        if admitted.prefix and name == b"location":
            value = completed(value, admitted.prefix, hosts_of(request, admitted))
        elif admitted.prefix and name == b"set-cookie":
            value = for_browser(value, mark_of(admitted.prefix), admitted.prefix)
            if not value:
                continue
        lines.append(b"%s: %s" % (name, value))
    lines += [b"%s: %s" % field for field in extra]
    lines.append(b"x-request-id: %s\r\n\r\n" % request.id.encode())
    return b"\r\n".join(lines)


def _own_cookies(headers: Headers, prefix: bytes) -> Headers:
    mark = mark_of(prefix)
    kept = ((name, for_sandbox(value, mark) if name == b"cookie" else value) for name, value in headers)
    return tuple((name, value) for name, value in kept if value or name != b"cookie")


def status_line(status: int, reason: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d %s" % (status, reason or _PHRASES.get(status, b"Unknown"))


def hosts_of(request: Request, admitted: Admitted) -> frozenset[bytes]:
    """Host names that the sandbox may use for itself: the client's, and the router's."""
    ours = own_host(admitted)
    return frozenset({ours, request.header(b"host") or ours})


def own_host(admitted: Admitted) -> bytes:
    """The Host header for a sandbox: the gate's choice, or the one for a client inside it."""
    for name, value in admitted.add:
        if name == b"host":
            return value
    return b"localhost" if admitted.port is None else b"localhost:%d" % admitted.port


def completed(location: bytes, prefix: bytes, hosts: frozenset[bytes]) -> bytes:
    """A redirect as the client must follow it: a path of the sandbox gets the prefix. Other sites are not changed."""
    prefix = prefix.rstrip(b"/")
    for scheme in (b"http://", b"https://"):
        if location.lower().startswith(scheme):
            host, _, rest = location[len(scheme) :].partition(b"/")
            return prefix + b"/" + rest if host in hosts else location
    if location.startswith(b"/") and not location.startswith((b"//", b"/\\")):
        return prefix + location
    return location


def mark_of(prefix: bytes) -> bytes:
    """The prefix of the names of its cookies in the browser."""
    return b"box-" + hashlib.sha256(prefix).hexdigest()[:16].encode() + b"-"


def for_sandbox(cookie: bytes, mark: bytes) -> bytes:
    """The value of a Cookie header with only the cookies of this sandbox; empty if there are none."""
    pairs = (pair.strip(b" \t") for pair in cookie.split(b";"))
    return b"; ".join(pair[len(mark) :] for pair in pairs if pair.startswith(mark))


def for_browser(cookie: bytes, mark: bytes, prefix: bytes) -> bytes:
    """The value of a Set-Cookie header as the browser gets it; empty if it is invalid."""
    pair, *attributes = cookie.split(b";")
    name, separator, value = pair.partition(b"=")
    name, path, kept = name.strip(b" \t"), b"/", []
    if not separator or not name:
        return b""
    for attribute in attributes:
        key, _, content = (part.strip(b" \t") for part in attribute.partition(b"="))
        if key.lower() == b"path":
            path = content if content.startswith(b"/") else b"/"
        elif key and key.lower() != b"domain":
            kept.append(attribute.strip(b" \t"))
    return b"; ".join([mark + name + b"=" + value, *kept, b"Path=" + prefix.rstrip(b"/") + path])

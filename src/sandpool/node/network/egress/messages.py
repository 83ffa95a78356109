"""The requests and responses that pass through the egress proxy: `GET http://host:port/path` or `CONNECT host:port`. Pure, and strict
(see http1.py).

Both are passed on without hop-by-hop headers. The proxy adds `Connection: close` to each response, so its body needs no framing.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from sandpool.node.network.egress.http1 import (
    Headers,
    Refusal,
    chunked,
    end_to_end,
    joined,
    length,
    malformed,
    split,
    values,
)
from sandpool.node.network.forbidden import Address

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]{1,8192}) HTTP/([0-9])\.([0-9])")
_ABSOLUTE = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)([^#]*)(#.*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{0,5}))?")
_NUMERIC = re.compile(r"([0-9]+|0[xX][0-9A-Fa-f]*)")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the proxy, fully parsed."""

    method: str
    host: str  # a name in lower case, or an address; never with brackets or a zone
    port: int
    address: Address | None  # if the host is an address, in any spelling
    path: str  # empty for CONNECT
    headers: Headers
    version: bytes
    length: int  # of the body; 0 if there is none or it is chunked
    chunked: bool

    @property
    def tunnel(self) -> bool:
        return self.method == "CONNECT"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 80 and not self.tunnel else f"{host}:{self.port}"

    def onward(self) -> bytes:
        """The head for the origin. Its Host is the one that was checked, whatever the client's Host header said."""
        first = b"%b %b %b" % (self.method.encode(), self.path.encode(), self.version)
        headers = end_to_end(self.headers, besides=("host",))
        return joined(first, (("host", self.authority.encode()), *headers, ("connection", b"close")))


def parse_request(head: bytes) -> Request:
    """Parses the head of a request. Refusal for anything that is not fully understood."""
    first, headers = split(head)
    method, target, version = _first(first)
    if len(values(headers, "host")) > 1:
        raise malformed("there is more than one Host header")
    body, streamed = length(headers), chunked(headers)
    if streamed and version != b"HTTP/1.1":
        raise malformed("a chunked body needs HTTP/1.1")
    if method == "CONNECT":
        if body is not None or streamed:
            raise malformed("a CONNECT request has no body")
        host, port, path = *_authority(target, None), ""
    else:
        host, port, path = _absolute(method, target)
    host, address = _host(host)
    return Request(method, host, port, address, path, headers, version, body or 0, streamed)


def _first(line: bytes) -> tuple[str, str, bytes]:
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise malformed("the first line is not `METHOD target HTTP/1.1`, or is too long")
    major, minor = found[3], found[4]
    if (major, minor) not in ((b"1", b"1"), (b"1", b"0")):
        raise Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "Malformed", "only HTTP/1.1 and HTTP/1.0 are supported")
    return found[1].decode(), found[2].decode(), b"HTTP/%b.%b" % (major, minor)


def _absolute(method: str, target: str) -> tuple[str, int, str]:
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        raise malformed("this is a proxy: ask for http://HOST/PATH, or CONNECT HOST:PORT, not for a path alone")
    scheme, authority, path, fragment = found.groups()
    if scheme.lower() != "http":
        raise malformed("only http:// is forwarded; use CONNECT for everything else")
    if fragment is not None:
        raise malformed("the target has a fragment (#); remove it")
    host, port = _authority(authority, 80)
    if not path:
        path = "*" if method == "OPTIONS" else "/"
    elif path[0] == "?":
        path = "/" + path
    return host, port, path


def _authority(text: str, default: int | None) -> tuple[str, int]:
    if "@" in text:
        raise malformed("a user name in the target is not accepted; send an Authorization header")
    if "%" in text:
        raise malformed("a zone id or an escaped character in a host is not accepted")
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise malformed("the target has no valid host")
    port = int(found[2]) if found[2] else default
    if port is None or not 0 < port < 65536:
        raise malformed("the target needs a port from 1 to 65535")
    return found[1], port


def _host(text: str) -> tuple[str, Address | None]:
    """Parses a host. Any spelling that a resolver would accept as an address counts as that address, and is never looked up."""
    if text.startswith("["):
        try:
            six = IPv6Address(text[1:-1])
        except AddressValueError:
            raise malformed("the target has no valid IPv6 address") from None
        return str(six), six
    plain = text.removesuffix(".").lower()
    if not plain or ".." in plain or plain.startswith(".") or any(len(label) > 63 for label in plain.split(".")):
        raise malformed("the target has no valid host name")
    if not _NUMERIC.fullmatch(plain.rsplit(".", 1)[-1]):
        return plain, None
    try:
        four = IPv4Address(socket.inet_aton(plain))  # 127.1, 0x7f000001, 017700000001, 2130706433
    except OSError:
        raise malformed("the target looks like an IPv4 address but is not valid") from None
    return str(four), four


_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]{0,1024})?")


@dataclass(frozen=True, slots=True)
class Response:
    """The head of an origin's response."""

    status: int
    first: bytes
    headers: Headers

    @property
    def interim(self) -> bool:
        """Whether another response follows (1xx). 101 has been refused already, because the proxy never requests an upgrade."""
        return 100 <= self.status < 200

    def onward(self) -> bytes:
        headers = end_to_end(self.headers)
        return joined(self.first, headers if self.interim else (*headers, ("connection", b"close")))


def parse_response(head: bytes) -> Response:
    first, headers = split(head)
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise malformed("the first line of the answer is not `HTTP/1.1 STATUS text`")
    status = int(found[1])
    if status == 101:
        raise malformed("the answer changes the protocol without being asked to")
    return Response(status, first, headers)

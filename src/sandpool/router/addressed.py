"""Reads from the headers which sandbox, port and path a request is for. Pure; the rules and their words are the contract's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from sandpool.model.metadata import Key
from sandpool.model.names import dns_label
from sandpool.router.answers import Refusal, denied, invalid
from sandpool.router.ports import Target
from sandpool.router.values import Request
from sandpool.wire import headers
from sandpool.wire.paths import BASE

LONGEST_UID = 128
_SANDBOX, _NAMESPACE, _PORT, _TIMEOUT, _POD_IP, _UID = (
    name.lower().encode()
    for name in (headers.SANDBOX, headers.NAMESPACE, headers.PORT, headers.TIMEOUT, headers.POD_IP, headers.UID)
)


@dataclass(frozen=True, slots=True)
class Addressed:
    key: Key
    port: int | None = None  # None: not given
    uid: str = ""
    timeout: float | None = None
    pod_ip: IPv4Address | IPv6Address | None = None


def names_sandbox(request: Request) -> bool:
    return request.header(_SANDBOX) is not None


def addressed(request: Request) -> Addressed | Refusal:
    name, namespace = _text(request, _SANDBOX), _text(request, _NAMESPACE) or headers.DEFAULT_NAMESPACE
    if not name:
        return invalid(
            f"{headers.SANDBOX} header is required.",
            f"the request does not say which sandbox it is for; put the name of the Sandbox into {headers.SANDBOX}",
        )
    if wrong := dns_label(name):
        return invalid("Invalid sandbox ID format.", f"{headers.SANDBOX} cannot be a sandbox's name: {wrong[0]}")
    if wrong := dns_label(namespace):
        return invalid("Invalid namespace format.", f"{headers.NAMESPACE} cannot be a namespace: {wrong[0]}")
    port = _text(request, _PORT)
    if port and _number(port) is None:
        return invalid("Invalid port format.", f"{headers.PORT} must be a number from 1 to 65535")
    uid = _text(request, _UID)
    if len(uid) > LONGEST_UID or not uid.isprintable():
        return invalid("Invalid sandbox UID format.", f"{headers.UID} must be metadata.uid of the Sandbox")
    pod_ip = _address(request)
    if isinstance(pod_ip, Refusal):
        return pod_ip
    return Addressed(Key(namespace, name), _number(port) if port else None, uid, _seconds(request), pod_ip)


def mistaken(wanted: Addressed, target: Target, known: tuple[str, ...]) -> Refusal | None:
    """A caller cannot choose an address: the header is only compared with the addresses of the sandbox."""
    ip = wanted.pod_ip
    if ip is None or any(_parsed(one) == ip for one in known):
        return None
    if ip.is_unspecified or ip.is_link_local or ip.is_multicast or ip.is_loopback:
        return _bad_address()
    return denied(
        f"{headers.POD_IP} {ip} is no address of sandbox {wanted.key}, whose pod is {target.pod}. Leave the header out: "
        "the router knows where the sandbox is"
    )


def for_daemon(path: bytes) -> bool:
    """Whether a path is one of boxd's own."""
    base = BASE.encode()
    return path.startswith(base) and path[len(base) : len(base) + 1] in (b"", b"/", b"?")


def _text(request: Request, name: bytes) -> str:
    return (request.header(name) or b"").decode("latin-1").strip()


def _number(text: str) -> int | None:
    sound = text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= 65535
    return int(text) if sound else None


def _seconds(request: Request) -> float | None:
    """As in the contract, an invalid number counts as absent."""
    try:
        seconds = float(_text(request, _TIMEOUT)[:32])
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _address(request: Request) -> IPv4Address | IPv6Address | Refusal | None:
    text = _text(request, _POD_IP)
    if not text:
        return None
    return _parsed(text) or _bad_address()


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _bad_address() -> Refusal:
    return invalid(
        "Invalid target IP address.", f"{headers.POD_IP} is not the address of a pod; leave it out: it is not needed"
    )

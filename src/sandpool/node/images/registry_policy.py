"""Which registries may be pulled from, and which addresses a pull may connect to. Pure.

A tenant chooses the names of images, and whoever runs a registry chooses where it redirects to and which token service it names. So three
things are checked at every hop: the origin against the operator's list, the step from one origin to the next, and the address that is
really connected to. This machine, its link and its pods are reachable only if the operator listed that host with that port.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address

from sandpool.node.images.options import ImageOptions
from sandpool.node.images.reference import ImageName, canonical_authority, host_of, loopback
from sandpool.node.network.forbidden import Address, faces, forbidden
from sandpool.node.network.route import Route

PUBLIC = "public"
_EVERY, _DEFAULT = -1, 0  # ports of an entry
_PORTS = {"https": 443, "http": 80}
_DOCKER_HUB = ("index.docker.io", "registry-1.docker.io")
_COMPANIONS = {
    "docker.io": ("registry-1.docker.io", "auth.docker.io", "production.cloudflare.docker.com"),
    "ghcr.io": ("pkg-containers.githubusercontent.com",),
    "quay.io": ("cdn.quay.io", "cdn01.quay.io", "cdn02.quay.io", "cdn03.quay.io"),
}
"""Hosts of one well-known registry: listing one allows all of them."""


class Reach(IntEnum):
    """How far a connection may go."""

    NOWHERE = 0
    PUBLIC = 1  # addresses of the internet, with TLS
    OTHERS = 2  # also private ones, but neither this machine nor its link
    ANYWHERE = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a URL."""

    scheme: str
    host: str  # lower case, without brackets
    port: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One registry that the operator listed."""

    host: str
    port: int
    path: str = ""
    reach: Reach = Reach.OTHERS

    def is_at(self, origin: Origin) -> bool:
        wanted = _PORTS.get(origin.scheme) if self.port == _DEFAULT else self.port
        return self.host == origin.host and (self.port == _EVERY or wanted == origin.port)


def parse_entry(text: str) -> Entry:
    """HOST, HOST:PORT or HOST:*, with a path after it or without. ValueError says what is wrong."""
    authority, _, path = text.partition("/")
    every = authority.endswith(":*")
    found = canonical_authority(authority.removesuffix(":*"))
    if found is None or (every and found != host_with_brackets(found)):
        raise ValueError("write HOST, HOST:PORT or HOST:*, such as registry.example.com or localhost:5000")
    port = found.removeprefix(host_with_brackets(found)).removeprefix(":")
    number = _EVERY if every else int(port) if port else _DEFAULT
    host = "docker.io" if host_of(found) in _DOCKER_HUB else host_of(found)
    return Entry(host, number, path.strip("/"), Reach.OTHERS if number == _DEFAULT else Reach.ANYWHERE)


def host_with_brackets(authority: str) -> str:
    host = host_of(authority)
    return f"[{host}]" if ":" in host else host


def _listed(options: ImageOptions) -> list[Entry]:
    entries = [parse_entry(text) for text in options.registries if text != PUBLIC]
    for text in options.insecure_registries:
        entry = parse_entry(text)  # without a port it has always meant every port of that host
        entries.append(Entry(entry.host, _EVERY, "", Reach.OTHERS) if entry.port == _DEFAULT else entry)
    return entries


def _plain_may(origin: Origin, options: ImageOptions) -> bool:
    """Whether plain HTTP is allowed: for this machine, or because the operator says so."""
    own = Entry(origin.host, origin.port)
    return loopback(origin.host) or any(
        parse_entry(text).host == own.host and parse_entry(text).port in (own.port, _DEFAULT, _EVERY)
        for text in options.insecure_registries
    )


def origin_of(name: ImageName, options: ImageOptions) -> Origin:
    """The origin of the registry of an image."""
    host = "registry-1.docker.io" if name.registry == "docker.io" else host_of(name.registry)
    port = name.registry.removeprefix(host_with_brackets(name.registry)).removeprefix(":")
    plain = _plain_may(Origin("http", host, int(port or 80)), options)
    return Origin("http", host, int(port or 80)) if plain else Origin("https", host, int(port or 443))


def registry_reach(name: ImageName, options: ImageOptions) -> Reach:
    """How far a pull of this image may go to reach its registry; NOWHERE if it must not be pulled at all."""
    origin = origin_of(name, options)
    host = "docker.io" if name.registry == "docker.io" else origin.host
    asked = Origin(origin.scheme, host, origin.port)
    found = [entry.reach for entry in _listed(options) if entry.is_at(asked) and _below(name.repository, entry.path)]
    if not found and PUBLIC in options.registries and origin.scheme == "https" and not loopback(origin.host):
        return Reach.PUBLIC
    return max(found, default=Reach.NOWHERE)


def hop_reach(start: Reach, name: ImageName, here: Origin, to: Origin, options: ImageOptions) -> Reach:
    """How far a redirect, or a request to a token service, may go. A registry that the operator did not list may lead only to the internet,
    even to hosts that are listed themselves."""
    if to == origin_of(name, options):
        return start
    if to.scheme != "https" and (to.scheme != "http" or here.scheme != "http" or not _plain_may(to, options)):
        return Reach.NOWHERE
    if start > Reach.PUBLIC:
        listed = [entry.reach for entry in _listed(options) if entry.is_at(to) and not entry.path]
        if listed:
            return max(listed)
        if to.scheme == "https" and to.port == _PORTS["https"] and to.host in _COMPANIONS.get(name.registry, ()):
            return Reach.PUBLIC
    allowed = PUBLIC in options.registries and to.scheme == "https" and not loopback(to.host)
    return Reach.PUBLIC if allowed else Reach.NOWHERE


def may_connect(address: Address, reach: Reach, route: Callable[[Address], Route]) -> bool:
    """Whether this resolved address is within reach."""
    if reach in (Reach.NOWHERE, Reach.ANYWHERE):
        return reach is Reach.ANYWHERE
    if forbidden(address) or (reach is Reach.PUBLIC and not all(face.is_global for face in faces(address))):
        return False
    try:
        return all(route(face) in (Route.UNICAST, Route.NONE) for face in faces(address))
    except OSError:
        return False  # unknown whether it is an address of this machine


def within(host: str, reach: Reach) -> bool:
    """Whether a host, as written, may be within reach. For hosts that a proxy resolves, this is the only check."""
    if reach is Reach.ANYWHERE:
        return True
    if loopback(host.rstrip(".")) or host.rstrip(".").endswith(".localhost"):
        return False
    try:
        return may_connect(ip_address(host), reach, lambda _: Route.NONE)
    except ValueError:
        last = host.rstrip(".").rpartition(".")[2]
        return not last.isdigit() and not last.startswith("0x")  # else a resolver may take it for an address


def _below(repository: str, path: str) -> bool:
    return not path or repository == path or repository.startswith(f"{path}/")


def trouble(entries: Sequence[str]) -> str:
    """What is wrong with a list of registries, for the operator; empty if nothing is."""
    for text in entries:
        try:
            if text != PUBLIC:
                parse_entry(text)
        except ValueError as error:
            return f"{text!r}: {error}"
    return ""

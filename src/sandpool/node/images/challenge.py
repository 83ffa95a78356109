"""Parses how a registry asks for a login (`WWW-Authenticate`), and decides which hosts may see its credentials. Pure.

A registry names a token service in `WWW-Authenticate: Bearer realm=...`. It may be another host, but a password goes only to the
registry's own domain, or to hosts that the operator lists; others are asked without one. It is apart from credentials.py because
only pulls load yarl.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from yarl import URL

from sandpool.node.images.reference import host_of

# Linear, because nothing is given back: spaces could be divided between the first two parts in any way.
_SCHEME = re.compile(r"\s*+,?+\s*+([A-Za-z][A-Za-z0-9_-]*+)(?:\s++|$|(?=,))")
_PARAMETER = re.compile(r'\s*+,?+\s*+([A-Za-z][A-Za-z0-9_-]*+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s",]++))')
_LONGEST = 8192
_MOST = 16  # headers of one response that are read, and challenges in each


@dataclass(frozen=True, slots=True)
class Basic:
    """The registry wants user name and password."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """The registry wants a token of its token service."""

    realm: str
    service: str = ""
    scope: str = ""


def challenges(headers: Iterable[str]) -> tuple[Basic | Bearer, ...]:
    """The challenges of a 401 response that this client understands, in the order given."""
    found: list[Basic | Bearer] = []
    for header in islice(headers, _MOST):
        for scheme, parameters in _split(header[:_LONGEST]):
            if scheme == "basic":
                found.append(Basic())
            elif scheme == "bearer" and parameters.get("realm"):
                found.append(Bearer(parameters["realm"], parameters.get("service", ""), parameters.get("scope", "")))
    return tuple(found)


def _split(header: str) -> list[tuple[str, dict[str, str]]]:
    found: list[tuple[str, dict[str, str]]] = []
    at = 0
    while at < len(header) and len(found) <= _MOST:
        if found and (parameter := _PARAMETER.match(header, at)):
            quoted, plain = parameter[2], parameter[3]
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
            found[-1][1].setdefault(parameter[1].lower(), value)
            at = parameter.end()
        elif scheme := _SCHEME.match(header, at):
            found.append((scheme[1].lower(), {}))
            at = scheme.end()
        else:
            break  # the rest cannot be parsed, and is ignored
    return found


def realm_trouble(realm: str) -> str:
    """Why this realm is not a usable URL of a token service; empty if it is. Whether it may be asked is decided in registry_policy.py."""
    try:
        url = URL(realm)
        host = url.host
    except ValueError:
        return "it is not a URL"
    if url.user is not None or url.password is not None or not host or url.scheme not in ("http", "https"):
        return "it is not a URL of a token service"
    return ""


def may_see_credentials(host: str, registry: str, listed: Sequence[str]) -> bool:
    """Whether a token service on this host belongs to the registry that the credentials are for."""
    own = host_of(registry)
    if own == "docker.io":
        return host == "auth.docker.io" or host in listed
    if host == own or host in listed:
        return True
    if ":" in own or own.replace(".", "").isdigit():
        return False  # an address has no domain
    labels = own.split(".")
    domain = ".".join(labels[1:]) if len(labels) > 2 else own
    return "." in domain and (host == domain or host.endswith(f".{domain}"))

"""Logins for registries: read from a Secret, and selected by the image's name. Pure; never logged or shown."""

from __future__ import annotations

import base64
import binascii
import fnmatch
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from sandpool.node.images.image import Credential
from sandpool.node.images.reference import DEFAULT_REGISTRY, ImageName

KEYS = DOCKER_CONFIG_JSON, DOCKER_CFG = ".dockerconfigjson", ".dockercfg"
"""Keys of a Secret that hold logins."""
MOST_TRIES = 16
"""Logins tried for one image: each costs several requests to its registry."""
_LONGEST_HOST = 261  # with a port
_DOCKER_HUB = {"docker.io", "index.docker.io", "registry-1.docker.io", "index.docker.io/v1", "index.docker.io/v2"}


def from_secret(data: Mapping[str, bytes], most: int | None = None) -> tuple[Credential, ...]:
    """The logins in a Secret of type kubernetes.io/dockerconfigjson or dockercfg, the first `most` of them. ValueError says what is
    wrong with it, without a word of what is in it."""
    if (content := data.get(DOCKER_CONFIG_JSON)) is not None:
        return from_docker_config(content, most)
    if (content := data.get(DOCKER_CFG)) is not None:
        return _logins(_object(content, "the document"), most)
    raise ValueError(f"it has neither the key {DOCKER_CONFIG_JSON} nor {DOCKER_CFG}")


def from_docker_config(content: bytes, most: int | None = None) -> tuple[Credential, ...]:
    """The logins of a file such as ~/.docker/config.json."""
    document = _object(content, "the document")
    return _logins(_mapping(document.get("auths", {}), "auths"), most)


def _object(content: bytes, what: str) -> Mapping[str, Any]:
    try:
        return _mapping(msgspec.json.decode(content), what)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"{what} is not JSON") from None  # a cause would quote what is in it


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def _logins(entries: Mapping[str, Any], most: int | None) -> tuple[Credential, ...]:
    return tuple(
        Credential(_place(registry), *login(_mapping(entry, f"the entry of {registry!r}"), registry))
        for registry, entry in islice(entries.items(), most)
    )


def login(entry: Mapping[str, Any], registry: str) -> tuple[str, str]:
    username, password, packed = (entry.get(key, "") for key in ("username", "password", "auth"))
    if not (isinstance(username, str) and isinstance(password, str) and isinstance(packed, str)):
        raise ValueError(f"the entry of {registry!r} has a field that is not text")
    if packed and not (username and password):
        try:
            username, colon, password = base64.b64decode(packed, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise ValueError(f"auth of {registry!r} is not base64") from None
        if not colon:
            raise ValueError(f"auth of {registry!r} is not base64 of user:password")
        password = password.rstrip("\x00")  # as some tools pad it
    return username, password


def _place(registry: str) -> str:
    """The scope of a login as host[:port][/path], normalised from the spellings in use."""
    place = registry.strip().removeprefix("https://").removeprefix("http://").rstrip("/")
    host, slash, path = place.partition("/")
    place = f"{host.lower()}{slash}{path}"
    if place in _DOCKER_HUB:
        return DEFAULT_REGISTRY
    return place.removesuffix("/v1").removesuffix("/v2")


def matching(credentials: Iterable[Credential], name: ImageName) -> tuple[Credential, ...]:
    """The logins for this image, the most specific first, else in the order given. The same login under several spellings of a registry
    counts once; at most MOST_TRIES are returned."""
    fitting = [(place, one) for one in credentials if one.username and _matches(place := _place(one.registry), name)]
    fitting.sort(key=lambda each: -len(each[0]))
    different: dict[tuple[str, str, str], Credential] = {}
    for place, one in fitting:
        different.setdefault((place, one.username, one.password), one)
    return tuple(islice(different.values(), MOST_TRIES))


def _matches(place: str, name: ImageName) -> bool:
    host, slash, path = place.partition("/")
    if len(host) > _LONGEST_HOST:  # no host name is that long, and matching such a pattern takes long
        return False
    wanted_host, _, wanted_port = _with_port(name.registry)
    given_host, _, given_port = _with_port(host)
    if given_port != wanted_port or not host_matches(given_host, wanted_host):
        return False
    return not slash or name.repository == path or name.repository.startswith(f"{path}/")


def _with_port(authority: str) -> tuple[str, str, str]:
    if authority.endswith("]"):
        return authority, "", ""
    host, colon, port = authority.rpartition(":")
    return (host, colon, port) if colon else (port, "", "")


def host_matches(pattern: str, host: str) -> bool:
    """A star matches within one label, never across several: `*.example.com` does not match `a.b.example.com`."""
    if host.startswith("["):
        return pattern == host
    patterns, labels = pattern.split("."), host.split(".")
    return len(patterns) == len(labels) and all(map(fnmatch.fnmatchcase, labels, patterns))

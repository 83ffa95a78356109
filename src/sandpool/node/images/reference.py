"""Parses a container's `image`: the machine's own files, a directory, or a name in a registry. Pure.

host                                          the machine's own programs
dir:/srv/roots/debian                         a directory that the operator allows
python                                        docker.io/library/python:latest
[::1]:5000/team/tool:1.2@sha256:...           registry, repository, tag, digest
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from sandpool.base.errors import NodeError

HOST, DIRECTORY_PREFIX = "host", "dir:"
DEFAULT_REGISTRY = "docker.io"
_LONGEST_REPOSITORY = 255
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_AUTHORITY = re.compile(
    rf"(?P<host>{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9a-fA-F:.]+\])(?::(?P<port>[0-9]{{1,5}}))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class HostReference:
    """`host`: the machine's own programs."""


@dataclass(frozen=True, slots=True)
class DirectoryReference:
    """`dir:PATH`"""

    path: str


@dataclass(frozen=True, slots=True)
class ImageName:
    """A complete name in a registry, with all defaults filled in."""

    registry: str  # host, or host:port
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"

    @property
    def wanted(self) -> str:
        """What to request from the registry: the digest if there is one, else the tag."""
        return self.digest or self.tag


def parse(text: str) -> HostReference | DirectoryReference | ImageName:
    """Raises NodeError InvalidImageName."""
    if text == HOST:
        return HostReference()
    if text.startswith(DIRECTORY_PREFIX):
        return DirectoryReference(text.removeprefix(DIRECTORY_PREFIX))
    return parse_name(text)


def parse_name(text: str) -> ImageName:
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise _invalid(text, f"{digest[:80]!r} is not a digest; write sha256: and 64 hexadecimal digits")
    registry, rest = _split_registry(text, rest)
    repository, colon, tag = rest.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _invalid(text, f"{tag[:80]!r} is not a tag")
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    if not _REPOSITORY.fullmatch(repository) or len(repository) > _LONGEST_REPOSITORY:
        raise _invalid(text, _about(repository.removeprefix("library/")))
    return ImageName(registry, repository, tag if colon else "" if at else "latest", digest)


def _about(repository: str) -> str:
    if repository.lower() != repository and _REPOSITORY.fullmatch(repository.lower()):
        return f"the repository {repository[:80]!r} must be in lower case"
    return f"{repository[:80]!r} is not a repository; write for example team/tool:1.2"


def _split_registry(text: str, rest: str) -> tuple[str, str]:
    """The first component is a registry if it has a dot, a port or upper case, or is localhost, as in Docker and containerd."""
    first, slash, remainder = rest.partition("/")
    if not slash or not (set(first) & set(".:[") or first == "localhost" or first != first.lower()):
        return DEFAULT_REGISTRY, rest
    if first in ("docker.io", "index.docker.io", "registry-1.docker.io"):
        return DEFAULT_REGISTRY, remainder
    registry = canonical_authority(first)
    if registry is None:
        raise _invalid(text, f"{first[:80]!r} is not a registry; write host or host:port")
    return registry, remainder


def canonical_authority(text: str) -> str | None:
    """host or host:port in one spelling; None if it is invalid."""
    found = _AUTHORITY.fullmatch(text)
    if found is None or (found["port"] and not 0 < int(found["port"]) < 65536):
        return None
    host = found["host"].lower()
    if host.startswith("["):
        try:
            host = f"[{ipaddress.IPv6Address(host[1:-1])}]"
        except ValueError:
            return None
    return f"{host}:{int(found['port'])}" if found["port"] else host


def host_of(authority: str) -> str:
    """The host of an authority, without port and brackets."""
    if authority.startswith("["):
        return authority[1 : authority.index("]")]
    return authority.partition(":")[0]


def loopback(host: str) -> bool:
    """Whether this host is this machine. Names other than localhost are not resolved: they may change."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _invalid(text: str, why: str) -> NodeError:
    return NodeError("InvalidImageName", f"image {text[:256]!r}: {why}")

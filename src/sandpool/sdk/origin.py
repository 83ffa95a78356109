"""The origin of a server: scheme, host and port of its address, and the prefix of all its paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandpool.kube.errors import ConfigError

_LOOPBACK = re.compile(r"127(\.\d{1,3}){3}", re.ASCII)
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    scheme: str
    host: str
    port: int
    prefix: str = ""  # begins with a slash and does not end with one, or is empty

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    @property
    def private(self) -> bool:
        """Whether nobody on the network can read it: TLS, or loopback."""
        return self.secure or self.host in ("localhost", "::1") or _LOOPBACK.fullmatch(self.host) is not None

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.prefix}"


def read_origin(url: str, where: str) -> Origin:
    """`where` names the setting with the address: messages about a bad one begin with it and never repeat the address, which may
    hold a secret."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{where}: is not an address; write it as https://HOST:PORT") from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise ConfigError(f"{where}: must be an address that starts with https:// or http://")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(f"{where}: must have no user, no query and no fragment; keep only the address and the path")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise ConfigError(f"{where}: has a character that a URL does not allow; percent-encode it")
    return Origin(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], parts.path.rstrip("/"))

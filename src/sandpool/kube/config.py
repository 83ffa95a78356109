"""How to reach an API server and as whom: the values that kubeconfig.py and incluster.py produce.

Paths in here are absolute. Nothing has been read from them yet except the CA: credentials are files that rotate, so
credentials.py reads them again when it must. Secrets are wrapped: no repr shows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from sandpool.base.secret import Secret


class InteractiveMode(StrEnum):
    NEVER = "Never"
    IF_AVAILABLE = "IfAvailable"
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The server: where it listens and whom to trust. No CA means the machine's own trust store."""

    server: str  # no trailing slash; may have a path
    ca: str = field(default="", repr=False)  # PEM
    insecure: bool = False
    server_name: str = ""  # what its certificate must say, if not the host of `server`


@dataclass(frozen=True, slots=True)
class Exec:
    """A credential plugin. `command` is absolute, or a bare name to be found on PATH."""

    api_version: str
    command: str
    args: tuple[str, ...] = field(default=(), repr=False)  # users do put secrets there
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    install_hint: str = ""
    interactive: InteractiveMode = InteractiveMode.IF_AVAILABLE
    cluster: dict[str, Any] | None = None  # what provideClusterInfo tells the plugin


@dataclass(frozen=True, slots=True)
class Pem:
    """A PEM that is either here or in a file."""

    data: Secret | None = None
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class User:
    """Who we are. At most one of token (or its file), basic and exec; a certificate may come with any."""

    token: Secret | None = None
    token_file: Path | None = None
    username: str = ""
    password: Secret | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    exec: Exec | None = None
    headers: tuple[tuple[str, str], ...] = ()  # impersonation


@dataclass(frozen=True, slots=True)
class Config:
    cluster: Cluster
    user: User
    namespace: str = "default"
    source: str = ""  # where all this was read, for messages
    in_pod: bool = False  # Kubernetes gave it to the pod that we are in

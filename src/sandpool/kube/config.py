"""How to reach an API server and as whom: the values that kubeconfig.py produces, and the configuration that Kubernetes gives to every pod.

Paths in here are absolute. Nothing has been read from them yet except the CA: credentials are files that rotate, so
credentials.py reads them again when needed. Secrets are wrapped: no repr shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from sandpool.base.secret import Secret
from sandpool.kube.errors import ConfigError


class InteractiveMode(StrEnum):
    """Whether a credential plugin may use the terminal, as kubeconfig spells it."""

    NEVER = "Never"
    IF_AVAILABLE = "IfAvailable"
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The server: where it listens and whom to trust. No CA means the machine's own trust store."""

    server: str  # no trailing slash; may have a path
    ca: str = field(default="", repr=False)  # PEM
    insecure: bool = False
    server_name: str = ""  # the name in its certificate, if not the host of `server`


@dataclass(frozen=True, slots=True)
class Exec:
    """A credential plugin. `command` is absolute, or a bare name to be found on PATH."""

    api_version: str
    command: str
    args: tuple[str, ...] = field(default=(), repr=False)  # may contain secrets
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    install_hint: str = ""
    interactive: InteractiveMode = InteractiveMode.IF_AVAILABLE
    cluster: dict[str, Any] | None = None  # what provideClusterInfo tells the plugin


@dataclass(frozen=True, slots=True)
class Pem:
    """PEM data, given directly or as a file."""

    data: Secret | None = None
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class User:
    """How we authenticate. At most one of token (or its file), basic and exec; a certificate may be combined with any."""

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
    """A server, a user and a namespace: everything needed to talk to an API server."""

    cluster: Cluster
    user: User
    namespace: str = "default"
    source: str = ""  # where all this was read, for messages
    in_pod: bool = False  # from the service account of the pod that we run in


def read_text(path: Path, what: str, hint: str) -> str:
    """The text of `path`. For the error: `what` names its content, `hint` the next step."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: {what} is not there; {hint}") from None
    except PermissionError:
        raise ConfigError(f"{path}: {what} may not be read by this user; change its mode or owner, or {hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: {what} should be a file but is a directory; {hint}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: {what} is not text; {hint}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {what} cannot be read ({error.strerror}); {hint}") from None


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def inside_cluster(env: Mapping[str, str]) -> bool:
    return bool(env.get("KUBERNETES_SERVICE_HOST") and env.get("KUBERNETES_SERVICE_PORT"))


def load_in_cluster(env: Mapping[str, str], mount: Path = SERVICE_ACCOUNT) -> Config:
    if not inside_cluster(env):
        raise ConfigError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this process does not run in a pod; "
            "use a kubeconfig instead"
        )
    host, port = env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    hint = "let the pod mount its service account (automountServiceAccountToken)"
    ca = read_text(mount / "ca.crt", "the cluster's CA", hint)
    read_text(mount / "token", "the service account's token", hint)  # fail now, not at the first request
    try:
        namespace = (mount / "namespace").read_text().strip()
    except OSError:
        namespace = ""
    return Config(
        cluster=Cluster(server=f"https://{host}:{port}", ca=ca),
        user=User(token_file=mount / "token"),
        namespace=namespace or "default",
        source=f"the service account in {mount}",
        in_pod=True,
    )

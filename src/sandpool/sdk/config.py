"""Finds the configuration: which cluster, which router, which credentials. Pure but for the files it reads; environment and home are arguments.

Order: explicit arguments; SANDPOOL_* variables; the cluster that runs on this machine; the current kubeconfig. A credential
is never sent to a server that it was not given for: with an explicit address only an explicit credential is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandpool.kube.errors import ConfigError
from sandpool.sdk.errors import NotConfigured
from sandpool.sdk.origin import read_origin

if TYPE_CHECKING:
    from sandpool.kube.config import Cluster, User
    from sandpool.kube.local_discovery import Running

NO_ROUTER = "set SANDPOOL_ROUTER_URL (or Config(router=...)) to the address of its router"

FindRunning = Callable[[Path], "Running | None"]


@dataclass(frozen=True, slots=True)
class Config:
    """How to reach a cluster. Every field is optional: what you leave out is looked up in SANDPOOL_* variables, a cluster on this machine
    and the kubeconfig."""

    api: str = ""
    """The address of the API server, as https://HOST:PORT."""
    router: str = ""
    """The address of the router."""
    router_plain: bool = False
    """Whether the token may be sent unencrypted to a router on another machine: only for a network where nobody else listens."""
    token: str = field(default="", repr=False)
    token_file: str | Path = ""
    """A file with the token. It is read again when the server refuses the token, and once a minute."""
    ca_file: str | Path = ""
    """The certificate authorities to trust, as a PEM file. Default: those of the machine."""
    namespace: str = ""
    kubeconfig: str | Path = ""
    context: str = ""
    """Of the kubeconfig. Empty: the current one."""
    data_dir: str | Path = ""
    """Of a cluster that runs on this machine."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The complete configuration of a connection."""

    cluster: Cluster
    user: User
    namespace: str
    router: str  # its address; empty if none is known
    tunnel: bool  # whether to reach it through the API server
    no_router: str  # advice if there is none
    router_ca: str = field(repr=False)  # PEM; empty for the authorities of the machine
    source: str  # for messages
    router_plain: bool = False  # whether it may be used unencrypted over a network


def resolve(given: Config | None, env: Mapping[str, str], home: Path, find_running: FindRunning) -> Resolved:
    """Raises NotConfigured if no cluster is found, ConfigError if the configuration is invalid."""
    config = _with_variables(given or Config(), env)
    if config.api:
        return _explicit(config)
    found = _from_files(config, env, home, find_running)
    if not (config.token or config.token_file):
        return found
    return replace(found, user=_user(config), source=f"{found.source} with another token")


def resolve_here(given: Config | None) -> Resolved:
    """With the environment of this process and its user's home."""
    from sandpool.kube.local_discovery import read_running

    return resolve(given, os.environ, Path.home(), read_running)


def _with_variables(config: Config, env: Mapping[str, str]) -> Config:
    """Fills in what was left out. With an explicit address, neither address nor credential come from the environment."""
    name = "SANDPOOL_"
    addressed = bool(config.api or config.kubeconfig or config.context or config.data_dir)
    proved = bool(config.token or config.token_file)
    return Config(
        api=config.api or ("" if addressed else env.get(f"{name}API_URL", "")),
        router=config.router or ("" if addressed else env.get(f"{name}ROUTER_URL", "")),
        router_plain=config.router_plain or (not addressed and env.get(f"{name}ROUTER_PLAIN", "") in ("1", "true")),
        token=config.token or ("" if proved or addressed else env.get(f"{name}TOKEN", "")),
        token_file=config.token_file or ("" if proved or addressed else env.get(f"{name}TOKEN_FILE", "")),
        ca_file=config.ca_file or ("" if addressed else env.get(f"{name}CA_FILE", "")),
        namespace=config.namespace or env.get(f"{name}NAMESPACE", ""),
        kubeconfig=config.kubeconfig or ("" if addressed else env.get(f"{name}KUBECONFIG", "")),
        context=config.context,
        data_dir=config.data_dir,
    )


def _explicit(config: Config) -> Resolved:
    from sandpool.kube.config import Cluster

    server = str(read_origin(config.api, "the address of the API server (SANDPOOL_API_URL)"))
    ca = _authority(config)
    return Resolved(
        cluster=Cluster(server=server, ca=ca),
        user=_user(config),
        namespace=config.namespace or "default",
        router=_router(config),
        router_plain=config.router_plain,
        tunnel=True,
        no_router=NO_ROUTER,
        router_ca=ca,
        source=server,
    )


def _from_files(config: Config, env: Mapping[str, str], home: Path, find_running: FindRunning) -> Resolved:
    from sandpool.kube.kubeconfig import load_config, load_kubeconfig

    root = _data_dir(config, env, home)
    running = None if config.context and not config.data_dir else find_running(root)
    if config.kubeconfig:
        loaded = load_config(env, home, path=Path(config.kubeconfig), context=config.context)
    elif running is not None:
        loaded = load_kubeconfig([Path(running.kubeconfig)], context=config.context)
    elif config.data_dir:
        raise NotConfigured(f"no cluster runs in {root}; start it with `sandpool up --data-dir {root}`")
    else:
        loaded = _current(config, env, home, root)
    here = running is not None and running.api.rstrip("/") == loaded.cluster.server
    return Resolved(
        cluster=loaded.cluster,
        user=loaded.user,
        namespace=config.namespace or loaded.namespace,
        router=_router(config) or (running.router if running is not None and here else ""),
        router_plain=config.router_plain,
        tunnel=not here,
        no_router=_idle(running) if running is not None and here else NO_ROUTER,
        router_ca=_authority(config),
        source=loaded.source,
    )


def _idle(running: Running) -> str:
    return f"the cluster on this machine was started with the backend {running.backend!r}, which runs no programs; start it with another"


def _current(config: Config, env: Mapping[str, str], home: Path, root: Path) -> Loaded:
    from sandpool.kube.config import inside_cluster
    from sandpool.kube.kubeconfig import load_config

    listed = [Path(part) for part in env.get("KUBECONFIG", "").split(":") if part] or [home / ".kube" / "config"]
    if not any(path.exists() for path in listed) and not inside_cluster(env):
        looked = ", ".join(str(path) for path in listed)
        raise NotConfigured(
            f"no cluster is known: SANDPOOL_API_URL is not set, no cluster runs in {root}, and there is no kubeconfig "
            f"({looked}); start a cluster on this machine with `sandpool up --detach`, or name one with SANDPOOL_API_URL"
        )
    return load_config(env, home, context=config.context)


def _data_dir(config: Config, env: Mapping[str, str], home: Path) -> Path:
    chosen = config.data_dir or env.get("SANDPOOL_DATA_DIR", "")
    base = env.get("XDG_DATA_HOME") or home / ".local" / "share"
    return Path(chosen) if chosen else Path(base) / "sandpool"


def _user(config: Config) -> User:
    from sandpool.base.secret import Secret
    from sandpool.kube.config import User

    if config.token and config.token_file:
        raise ConfigError(
            "both a token and a token file are given (SANDPOOL_TOKEN, SANDPOOL_TOKEN_FILE); keep one of them"
        )
    return User(
        token=Secret(config.token.strip()) if config.token else None,
        token_file=Path(config.token_file).absolute() if config.token_file else None,
    )


def _authority(config: Config) -> str:
    from sandpool.kube.config import read_text

    if not config.ca_file:
        return ""
    return read_text(
        Path(config.ca_file), "the certificate authority", "correct SANDPOOL_CA_FILE (or Config(ca_file=...))"
    )


def _router(config: Config) -> str:
    return str(read_origin(config.router, "the address of the router (SANDPOOL_ROUTER_URL)")) if config.router else ""


if TYPE_CHECKING:
    from sandpool.kube.config import Config as Loaded

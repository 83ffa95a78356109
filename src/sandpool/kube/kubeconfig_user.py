"""The user of a kubeconfig as a User: tokens, passwords, certificates, impersonation and credential plugins."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import quote

from sandpool.base.secret import Secret
from sandpool.kube.config import Cluster, Exec, InteractiveMode, Pem, User
from sandpool.kube.errors import ConfigError
from sandpool.kube.kubeconfig_file import ClusterEntry, ExecEntry, Found, UserEntry

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"
"""The extension of a cluster whose content a plugin is given as its configuration."""


def user_of(entry: UserEntry, where: Found, cluster: ClusterEntry, resolved: Cluster) -> User:
    if entry.auth_provider:
        raise ConfigError(f"{where.at('auth-provider')}: Kubernetes removed it; use exec with a credential plugin")
    _check_one_method(entry, where)
    certificate = _pem(entry.client_certificate, entry.client_certificate_data, where, "client-certificate")
    key = _pem(entry.client_key, entry.client_key_data, where, "client-key")
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise ConfigError(f"{where.at(missing)}: is missing; a certificate needs its key and a key its certificate")
    return User(
        token=Secret(entry.token) if entry.token else None,
        token_file=where.file.parent / entry.token_file if entry.token_file else None,
        username=entry.username or "",
        password=Secret(entry.password) if entry.password else None,
        certificate=certificate,
        key=key,
        exec=_exec(entry.exec, where, cluster, resolved) if entry.exec else None,
        headers=_impersonation(entry, where),
    )


def decode_pem(data: str, where: str) -> str:
    """The text of a base64 field. The message never holds any of it."""
    try:
        return base64.b64decode("".join(data.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise ConfigError(f"{where}: is not the base64 of a PEM; encode the whole file") from None


def _check_one_method(entry: UserEntry, where: Found) -> None:
    methods = {
        "token": entry.token or entry.token_file,
        "username": entry.username or entry.password,
        "exec": entry.exec,
    }
    used = [name for name, value in methods.items() if value]
    if len(used) > 1:
        raise ConfigError(f"{where.file}: {where.field}: has {' and '.join(used)}; keep one way to authenticate")


def _pem(file: str | None, data: str | None, where: Found, field: str) -> Pem | None:
    if data:
        return Pem(data=Secret(decode_pem(data, where.at(f"{field}-data"))))
    if file:
        return Pem(file=where.file.parent / file)
    return None


def _impersonation(entry: UserEntry, where: Found) -> tuple[tuple[str, str], ...]:
    others = entry.impersonate_uid or entry.impersonate_groups or entry.impersonate_extra
    if not entry.impersonate:
        if others:
            raise ConfigError(
                f"{where.at('as')}: is missing; a server refuses as-uid, as-groups and as-user-extra alone"
            )
        return ()
    headers = [("Impersonate-User", entry.impersonate)]
    if entry.impersonate_uid:
        headers.append(("Impersonate-Uid", entry.impersonate_uid))
    headers += [("Impersonate-Group", group) for group in entry.impersonate_groups or ()]
    for name, values in (entry.impersonate_extra or {}).items():
        headers += [(f"Impersonate-Extra-{quote(name, safe='')}", value) for value in values]
    if any(not value.isprintable() for _, value in headers):
        raise ConfigError(f"{where.at('as')}: a name or group holds a character that a header cannot carry; correct it")
    return tuple(headers)


def _exec(entry: ExecEntry, where: Found, cluster: ClusterEntry, resolved: Cluster) -> Exec:
    if entry.api_version not in (V1, V1BETA1):
        raise ConfigError(f"{where.at('exec.apiVersion')}: must be {V1} or {V1BETA1}; upgrade the plugin")
    if not entry.command:
        raise ConfigError(f"{where.at('exec.command')}: is missing; name the plugin's executable")
    command = entry.command
    if "/" in command:
        command = str(where.file.parent / command)
    return Exec(
        api_version=entry.api_version,
        command=command,
        args=tuple(entry.args or ()),
        env=tuple((pair.name, pair.value) for pair in entry.env or ()),
        install_hint=entry.install_hint or "",
        interactive=_interactive(entry, where),
        cluster=_cluster_info(cluster, resolved) if entry.provide_cluster_info else None,
    )


def _interactive(entry: ExecEntry, where: Found) -> InteractiveMode:
    if entry.interactive_mode is None:
        if entry.api_version == V1:
            raise ConfigError(f"{where.at('exec.interactiveMode')}: is required by {V1}; set Never or IfAvailable")
        return InteractiveMode.IF_AVAILABLE
    try:
        return InteractiveMode(entry.interactive_mode)
    except ValueError:
        raise ConfigError(f"{where.at('exec.interactiveMode')}: must be Never, IfAvailable or Always") from None


def _cluster_info(entry: ClusterEntry, resolved: Cluster) -> dict[str, Any]:
    config = next((e.extension for e in entry.extensions or () if e.name == CLUSTER_EXTENSION), None)
    info = {
        "server": resolved.server,
        "tls-server-name": resolved.server_name,
        "insecure-skip-tls-verify": resolved.insecure,
        "certificate-authority-data": base64.b64encode(resolved.ca.encode()).decode(),
        "config": config,
    }
    return {name: value for name, value in info.items() if value}

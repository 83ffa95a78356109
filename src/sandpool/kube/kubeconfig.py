"""From kubeconfig files to a Config: which files, which context, and what each field means.

Order, as kubectl has it: the file that was asked for; the files of KUBECONFIG, those that exist; ~/.kube/config; inside a
pod, its service account. Of several files the first to name a cluster, a user, a context or the current context decides; each entry
remembers its file, because relative paths mean the file's own directory. Combinations whose meaning is unclear are refused. Messages
name file and field, never a value.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import yaml

from sandpool.base.secret import Secret
from sandpool.kube.config import (
    Cluster,
    Config,
    Exec,
    InteractiveMode,
    Pem,
    User,
    inside_cluster,
    load_in_cluster,
    read_text,
)
from sandpool.kube.errors import ConfigError


def load_config(env: Mapping[str, str], home: Path, *, path: Path | None = None, context: str = "") -> Config:
    """The configuration that kubectl would use. `path` is a kubeconfig that the user named: it must exist."""
    files = [path] if path is not None else _present(env, home)
    if not files:
        if inside_cluster(env) and not context:
            return load_in_cluster(env)
        looked = ", ".join(str(candidate) for candidate in _candidates(env, home))
        raise ConfigError(f"no kubeconfig: looked for {looked}; set KUBECONFIG or start a cluster with `sandpool up`")
    return load_kubeconfig(files, context=context)


def load_kubeconfig(paths: Sequence[Path], *, context: str = "") -> Config:
    merged = merge_files([path.absolute() for path in paths])
    source = ", ".join(str(path) for path in merged.files)
    wanted = context or merged.current
    if not wanted:
        raise ConfigError(f"{source}: current-context is not set; choose one of {_names(merged.contexts)}")
    if wanted not in merged.contexts:
        raise ConfigError(f"{source}: there is no context {wanted!r}; choose one of {_names(merged.contexts)}")
    chosen, found = merged.contexts[wanted]
    if not chosen.cluster or chosen.cluster not in merged.clusters:
        raise ConfigError(f"{found.at('cluster')}: there is no cluster {chosen.cluster!r}; add it or correct the name")
    entry, where = merged.clusters[chosen.cluster]
    cluster = _cluster(entry, where)
    return Config(
        cluster=cluster,
        user=_user(merged, chosen.user, found, entry, cluster),
        namespace=chosen.namespace or "default",
        source=source,
    )


def _candidates(env: Mapping[str, str], home: Path) -> list[Path]:
    listed = [Path(part) for part in env.get("KUBECONFIG", "").split(":") if part]
    return list(dict.fromkeys(listed)) or [home / ".kube" / "config"]


def _present(env: Mapping[str, str], home: Path) -> list[Path]:
    return [path for path in _candidates(env, home) if path.exists()]


def _names(entries: Mapping[str, object]) -> str:
    return ", ".join(sorted(entries)) or "none (the file has no contexts)"


def _user(merged: Merged, name: str | None, context: Found, cluster: ClusterEntry, resolved: Cluster) -> User:
    if not name:
        return User()  # anonymous, as kubectl has it
    if name not in merged.users:
        raise ConfigError(f"{context.at('user')}: there is no user {name!r}; add it or correct the name")
    entry, where = merged.users[name]
    return user_of(entry, where, cluster, resolved)


def _cluster(entry: ClusterEntry, where: Found) -> Cluster:
    server = _server(entry.server or "", where.at("server"))
    if entry.proxy_url:
        raise ConfigError(f"{where.at('proxy-url')}: proxies are not supported; remove the field or tunnel another way")
    ca = _authority(entry, where)
    insecure = bool(entry.insecure_skip_tls_verify)
    if ca and insecure:
        raise ConfigError(
            f"{where.at('insecure-skip-tls-verify')}: contradicts certificate-authority; remove one of the two"
        )
    return Cluster(server=server, ca=ca, insecure=insecure, server_name=entry.tls_server_name or "")


def _server(text: str, where: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{where}: must be an address that starts with https:// (or http://)") from None
    if "@" in parts.netloc:  # it would be shown wherever the address is
        raise ConfigError(f"{where}: holds a user or a password; put them into the user's username and password")
    if parts.query or parts.fragment:
        raise ConfigError(f"{where}: has a query or a fragment; keep only the address and the path")
    return text.rstrip("/")


def _authority(entry: ClusterEntry, where: Found) -> str:
    if entry.certificate_authority_data:
        return decode_pem(entry.certificate_authority_data, where.at("certificate-authority-data"))
    if entry.certificate_authority:
        path = where.file.parent / entry.certificate_authority
        return read_text(path, "the certificate authority", f"correct {where.at('certificate-authority')}")
    return ""


class _Part(msgspec.Struct, frozen=True, rename="kebab"):
    """Null and absent are the same; unknown fields are left alone."""


class Extension(msgspec.Struct, frozen=True):
    name: str = ""
    extension: Any = None


class ClusterEntry(_Part, frozen=True):
    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    extensions: list[Extension] | None = None


class EnvEntry(msgspec.Struct, frozen=True):
    name: str
    value: str


class ExecEntry(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: list[EnvEntry] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class UserEntry(_Part, frozen=True):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    impersonate: str | None = msgspec.field(name="as", default=None)
    impersonate_uid: str | None = msgspec.field(name="as-uid", default=None)
    impersonate_groups: list[str] | None = msgspec.field(name="as-groups", default=None)
    impersonate_extra: dict[str, list[str]] | None = msgspec.field(name="as-user-extra", default=None)
    auth_provider: Any = None
    exec: ExecEntry | None = None


class ContextEntry(_Part, frozen=True):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: ClusterEntry | None = None


class NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: UserEntry | None = None


class NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: ContextEntry | None = None


class _File(_Part, frozen=True):
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Where an entry was found: its file, and the path of its fields in that file."""

    file: Path
    field: str

    def at(self, name: str) -> str:
        return f"{self.file}: {self.field}.{name}"


@dataclass(frozen=True, slots=True)
class Merged:
    """The entries of all files together, by name."""

    files: tuple[Path, ...]
    current: str
    clusters: dict[str, tuple[ClusterEntry, Found]]
    users: dict[str, tuple[UserEntry, Found]]
    contexts: dict[str, tuple[ContextEntry, Found]]


class _Loader(yaml.CSafeLoader):
    """YAML in which only null, booleans and merges are anything but text: a token of digits stays a token."""


_Loader.yaml_implicit_resolvers = {
    first: kept
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    if (kept := [(tag, regex) for tag, regex in resolvers if tag.rsplit(":", 1)[1] in ("null", "bool", "merge")])
}


def merge_files(paths: Sequence[Path]) -> Merged:
    """All files as one configuration."""
    merged = Merged(tuple(paths), "", {}, {}, {})
    current = ""
    for path in paths:
        file = _read(path)
        current = current or file.current_context or ""
        for cluster in file.clusters or ():
            found = Found(path, f"clusters[{cluster.name}].cluster")
            merged.clusters.setdefault(cluster.name, (cluster.cluster or ClusterEntry(), found))
        for user in file.users or ():
            merged.users.setdefault(user.name, (user.user or UserEntry(), Found(path, f"users[{user.name}].user")))
        for context in file.contexts or ():
            found = Found(path, f"contexts[{context.name}].context")
            merged.contexts.setdefault(context.name, (context.context or ContextEntry(), found))
    return Merged(merged.files, current, merged.clusters, merged.users, merged.contexts)


def _read(path: Path) -> _File:
    text = read_text(path, "the kubeconfig", "name one that exists, with KUBECONFIG (or Config(kubeconfig=...))")
    try:
        # The loader is a safe one with fewer types; S506 only knows the two names of the library.
        document = yaml.load(text, Loader=_Loader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        # The library's own words quote the file, and what they quote may be a secret: only the position is given.
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}: not YAML{line}; correct the file") from None
    except yaml.YAMLError:
        raise ConfigError(f"{path}: not YAML (a character that YAML does not allow); correct the file") from None
    try:
        return msgspec.convert({} if document is None else document, type=_File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: not a kubeconfig: {error}; correct the field") from None


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

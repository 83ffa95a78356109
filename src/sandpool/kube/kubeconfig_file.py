"""Kubeconfig files as they are written: read, checked for shape and merged the way kubectl merges them.

Of several files the first to name a cluster, a user, a context or the current context decides; each entry remembers
its file, because relative paths mean the file's own directory. Messages name file and field, never a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from sandpool.kube.errors import ConfigError
from sandpool.kube.files import read_text


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
        # The library's own words quote the file, and what they quote may be a secret: only the place is told.
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}: not YAML{line}; correct the file") from None
    except yaml.YAMLError:
        raise ConfigError(f"{path}: not YAML (a character that YAML does not allow); correct the file") from None
    try:
        return msgspec.convert({} if document is None else document, type=_File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: not a kubeconfig: {error}; correct the field") from None

"""From kubeconfig files to a Config: which files, which context, and what each field means.

Order, as kubectl has it: the file that was asked for; the files of KUBECONFIG, those that exist; ~/.kube/config; inside a
pod, its service account. Combinations whose meaning is unclear are refused, with the file and the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from sandpool.kube.config import Cluster, Config, User
from sandpool.kube.errors import ConfigError
from sandpool.kube.files import read_text
from sandpool.kube.incluster import inside_cluster, load_in_cluster
from sandpool.kube.kubeconfig_file import ClusterEntry, Found, Merged, merge_files
from sandpool.kube.kubeconfig_user import decode_pem, user_of


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

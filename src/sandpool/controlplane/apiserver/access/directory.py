"""The directory of keys, certificates, tokens and the kubeconfig: created at the first start, renewed when necessary, private to its owner.

Files are written atomically, and only their owner may read secrets.
"""

from __future__ import annotations

import base64
import os
import secrets
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from sandpool.controlplane.apiserver.access.authority import (
    USUAL_NAMES,
    Pair,
    authority_usable,
    make_authority,
    make_server,
    server_usable,
)
from sandpool.kube.tls import agree_cheaply

SECRET_BYTES = 32  # 256 bits
NAME = "sandpool"


def write_atomically(path: Path, content: bytes, mode: int) -> None:
    """Writes a temporary file, syncs it, then renames it over the old one."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)  # whatever the umask says
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_secret(path: Path, content: bytes) -> None:
    write_atomically(path, content, 0o600)


def read_secret(path: Path) -> bytes | None:
    """The content, or None if there is no such file. Removes permissions of other users."""
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return path.read_bytes()
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """Credentials of the server and of its admin. No repr: they must not appear in logs."""

    authority: bytes  # the CA's certificate, PEM: what clients trust
    certificate: Path
    key: Path
    admin_token: str
    signing_key: bytes  # for service-account tokens
    router_key: bytes  # for tokens of one sandbox

    def tls(self) -> ssl.SSLContext:
        context = agree_cheaply(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(["http/1.1"])
        return context


def open_access(directory: Path, hosts: tuple[str, ...], now: datetime) -> Access:
    """Reads the directory; creates and renews what is missing or about to expire. `hosts`: names or addresses in addition to local ones."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    authority = _authority(directory, now)
    _server(directory, authority, tuple(dict.fromkeys((*USUAL_NAMES, *hosts))), now)
    return Access(
        authority=authority.certificate,
        certificate=directory / "server.crt",
        key=directory / "server.key",
        admin_token=_secret(directory / "admin.token").decode(),
        signing_key=_secret(directory / "tokens.key"),
        router_key=_secret(directory / "router.key"),
    )


def _authority(directory: Path, now: datetime) -> Pair:
    found = _read_pair(directory, "ca")
    if found is not None and authority_usable(found, now):
        return found
    made = make_authority(now)
    _write_pair(directory, "ca", made)
    return made


def _server(directory: Path, authority: Pair, names: tuple[str, ...], now: datetime) -> None:
    found = _read_pair(directory, "server")
    if found is None or not server_usable(found, authority, names, now):
        _write_pair(directory, "server", make_server(authority, names, now))


def _read_pair(directory: Path, name: str) -> Pair | None:
    key = read_secret(directory / f"{name}.key")
    certificate = directory / f"{name}.crt"
    if key is None or not certificate.exists():
        return None
    return Pair(certificate.read_bytes(), key)


def _write_pair(directory: Path, name: str, pair: Pair) -> None:
    """Writes the key first: a crash in between leaves a pair that does not match, which the next start replaces."""
    write_secret(directory / f"{name}.key", pair.key)
    write_atomically(directory / f"{name}.crt", pair.certificate, 0o644)


def _secret(path: Path) -> bytes:
    """A random secret of 256 bits, created if the file is absent, truncated or otherwise invalid."""
    found = (read_secret(path) or b"").strip()
    if len(found) >= SECRET_BYTES and found.isascii() and found.decode().isprintable():
        return found
    made = secrets.token_urlsafe(SECRET_BYTES).encode()
    write_secret(path, made + b"\n")
    return made


def kubeconfig(url: str, authority: bytes, token: str, namespace: str = "default") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": NAME,
                "cluster": {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()},
            }
        ],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
        "current-context": NAME,
        "preferences": {},
    }


def write_kubeconfig(path: Path, url: str, authority: bytes, token: str, namespace: str = "default") -> None:
    content = yaml.safe_dump(kubeconfig(url, authority, token, namespace), sort_keys=False)
    write_secret(path, content.encode())

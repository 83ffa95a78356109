"""The folder of keys, certificates and tokens: made on first start, renewed when due, private to its owner."""

from __future__ import annotations

import secrets
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sandpool.controlplane.apiserver.access.authority import (
    USUAL_NAMES,
    Pair,
    authority_usable,
    make_authority,
    make_server,
    server_usable,
)
from sandpool.controlplane.apiserver.access.files import read_secret, write_atomically, write_secret
from sandpool.kube.tls import agree_cheaply

SECRET_BYTES = 32  # 256 bits


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """What a server needs to prove itself and to know its admin. No repr: nothing of this belongs in logs."""

    authority: bytes  # the CA's certificate, PEM: what clients trust
    certificate: Path
    key: Path
    admin_token: str
    signing_key: bytes  # of service-account tokens
    router_key: bytes  # of tokens for one sandbox

    def tls(self) -> ssl.SSLContext:
        context = agree_cheaply(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(["http/1.1"])
        return context


def open_access(directory: Path, hosts: tuple[str, ...], now: datetime) -> Access:
    """What is in the folder, completed and renewed. `hosts` are names or addresses beyond the usual local ones."""
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
    """The key first: a crash in between leaves a pair that does not fit, which the next start makes anew."""
    write_secret(directory / f"{name}.key", pair.key)
    write_atomically(directory / f"{name}.crt", pair.certificate, 0o644)


def _secret(path: Path) -> bytes:
    """A random text of 256 bits, made if the file is absent, cut short or overwritten with something else."""
    found = (read_secret(path) or b"").strip()
    if len(found) >= SECRET_BYTES and found.isascii() and found.decode().isprintable():
        return found
    made = secrets.token_urlsafe(SECRET_BYTES).encode()
    write_secret(path, made + b"\n")
    return made

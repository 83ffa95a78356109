"""What the other side of a TLS connection may make us compute."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandpool.controlplane.apiserver.access.directory import Access, open_access
from sandpool.kube.tls import agree_cheaply

LARGE = "ffdhe8192"
"""A group of numbers of 8,192 bits: a quarter of a second for each handshake."""


@pytest.fixture
def access(tmp_path: Path) -> Access:
    return open_access(tmp_path / "access", (), datetime.now(UTC))


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """The version on which they agree; ssl.SSLError if they do not."""
    wires = [ssl.MemoryBIO() for _ in range(2)]
    sides = [
        client.wrap_bio(wires[0], wires[1], server_hostname="localhost"),
        server.wrap_bio(wires[1], wires[0], server_side=True),
    ]
    left = list(sides)
    for _ in range(10):
        for side in tuple(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not left
    return sides[0].version()


def stranger(purpose: int = ssl.PROTOCOL_TLS_CLIENT) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def in_large_numbers(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_ecdh_curve(LARGE)
    return context


def by_old_means(context: ssl.SSLContext) -> ssl.SSLContext:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("DHE")
    return context


HOSTILE = [in_large_numbers, by_old_means]


@pytest.mark.parametrize("means", HOSTILE)
def test_a_server_is_not_made_to_compute(access: Access, means: Callable[[ssl.SSLContext], ssl.SSLContext]) -> None:
    with pytest.raises(ssl.SSLError):
        shaken(access.tls(), means(stranger()))


@pytest.mark.parametrize("means", HOSTILE)
def test_a_client_of_strangers_neither(access: Access, means: Callable[[ssl.SSLContext], ssl.SSLContext]) -> None:
    server = means(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    server.load_cert_chain(access.certificate, access.key)
    with pytest.raises(ssl.SSLError):
        shaken(server, agree_cheaply(stranger()))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("curve", ["", "prime256v1"])
def test_everybody_else_is_served(access: Access, version: ssl.TLSVersion, curve: str) -> None:
    client = stranger()
    client.maximum_version = version
    if curve:
        client.set_ecdh_curve(curve)
    assert shaken(access.tls(), client) == version.name.replace("_", ".")

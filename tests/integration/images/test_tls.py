"""Registries elsewhere are asked over TLS, and through the proxy that the machine is told to use."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sandpool.base.errors import NodeError
from sandpool.node.images.image import Credential
from sandpool.node.images.options import ImageOptions
from support.clocks.impatient_clock import ImpatientClock
from support.images.files import file, make_image
from support.images.small_registry import PASSWORD, USER, SmallRegistry, small_registry
from support.images.store import image_store
from support.network.connect_proxy import connect_proxy

IMAGE = make_image([file("a", "x")])
REGISTRY = "registry.example"


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server of this name, and for a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = signed.public_bytes(serialization.Encoding.PEM)
    hidden = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(pem + hidden)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem")
    return server, ssl.create_default_context(cadata=pem.decode())


def put(registry: SmallRegistry) -> None:
    registry.blobs |= IMAGE.blobs
    registry.manifests["tool", "1"] = (IMAGE.media_type, IMAGE.manifest)


async def test_tls_through_a_proxy(tmp_path: Path) -> None:
    server, client = certificate(tmp_path, REGISTRY)
    async with small_registry(tls=server, login="basic") as registry:
        put(registry)
        port = int(registry.address.rpartition(":")[2])
        async with connect_proxy("127.0.0.1", port) as proxy:
            options = ImageOptions(tls=client, proxies={"https": proxy.address})
            async with image_store(tmp_path / "i", options) as store:
                login = [Credential(REGISTRY, USER, PASSWORD)]
                assert (await store.take(f"{REGISTRY}/tool:1", holder="a", credentials=login)).id == IMAGE.id
            assert set(proxy.asked) == {f"CONNECT {REGISTRY}:443 HTTP/1.1"}


@pytest.mark.parametrize("trouble", ["unknown authority", "other name"])
async def test_who_is_not_trusted_is_asked_nothing(tmp_path: Path, trouble: str) -> None:
    server, client = certificate(tmp_path, REGISTRY if trouble == "unknown authority" else "other.example")
    async with small_registry(tls=server) as registry:
        put(registry)
        port = int(registry.address.rpartition(":")[2])
        async with connect_proxy("127.0.0.1", port) as proxy:
            trust = None if trouble == "unknown authority" else client
            options = ImageOptions(tls=trust, proxies={"https": proxy.address})
            async with image_store(tmp_path / "i", options) as store:
                with pytest.raises(NodeError, match=r"registry\.example is not trusted: .*certificate"):
                    await store.take(f"{REGISTRY}/tool:1", holder="a")
            assert len(proxy.asked) == 1
        assert registry.seen == []


async def test_a_registry_elsewhere_is_never_asked_without_tls(tmp_path: Path) -> None:
    """The proxy leads to a server that speaks plain http; so would an attacker on the way."""
    async with small_registry() as registry:
        put(registry)
        port = int(registry.address.rpartition(":")[2])
        async with connect_proxy("127.0.0.1", port) as proxy:
            options = ImageOptions(proxies={"https": proxy.address, "http": proxy.address}, attempts=1)
            async with image_store(tmp_path / "i", options, ImpatientClock()) as store:
                with pytest.raises(NodeError):
                    await store.take(f"{REGISTRY}/tool:1", holder="a")
            assert proxy.asked == [f"CONNECT {REGISTRY}:443 HTTP/1.1"]
        assert registry.seen == []

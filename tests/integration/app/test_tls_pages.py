"""Metrics over HTTPS: with a certificate that is given or with one of our own, and bounded as without."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandpool.app.server_tls import RENEWED, ServerTls, certified
from sandpool.kube.errors import ConfigError
from sandpool.loop.serving_tls import INTERVAL, CertificateFiles, read_terms
from sandpool.telemetry.pages import Address, Bounds, CannotListen, Page, Pages
from support.clocks.manual_clock import ManualClock
from support.kube.certificates import Authority

HERE = Address("127.0.0.1", 0)
FLAG = "--metrics-cert-dir"


async def hello(query: Mapping[str, str]) -> Page:
    return Page(b"hello\n")


@asynccontextmanager
async def served(tls: ServerTls, bounds: Bounds = Bounds()) -> AsyncIterator[tuple[Address, ManualClock]]:
    clock = ManualClock()
    async with (
        certified(tls, clock, FLAG) as context,
        Pages({"/hello": hello}, bounds).listening(HERE, "--x", context) as address,
    ):
        yield address, clock


async def asked(address: Address, client: ssl.SSLContext) -> tuple[bytes, bytes]:
    """The first line of the answer, and the certificate that was shown."""
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=client)
    writer.write(b"GET /hello HTTP/1.1\r\n\r\n")
    line = await reader.readline()
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return line.rstrip(), bytes(shown)


def trusting_anybody() -> ssl.SSLContext:
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return client


def given(folder: Path) -> tuple[ServerTls, ssl.SSLContext]:
    """A certificate in files, and a client that trusts who signed it."""
    authority = Authority("test")
    authority.write_ca(folder / "ca")
    authority.write_server(folder / "tls", names=[], addresses=["127.0.0.1"])
    files = CertificateFiles(folder / "tls.crt", folder / "tls.key")
    return ServerTls(files), ssl.create_default_context(cafile=str(folder / "ca.crt"))


async def test_with_a_certificate_that_clients_check(tmp_path: Path) -> None:
    tls, client = given(tmp_path)
    async with served(tls) as (address, clock):
        line, first = await asked(address, client)
        assert line == b"HTTP/1.1 200 OK"
        _, client = given(tmp_path)
        clock.advance(INTERVAL)
        await asyncio.sleep(0)
        line, second = await asked(address, client)
        assert line == b"HTTP/1.1 200 OK"
        assert second != first, "the files were replaced"


async def test_without_one_it_signs_its_own_and_renews_it() -> None:
    async with served(ServerTls()) as (address, clock):
        line, first = await asked(address, trusting_anybody())
        assert line == b"HTTP/1.1 200 OK"
        clock.advance(RENEWED)
        await asyncio.sleep(0)
        assert (await asked(address, trusting_anybody()))[1] != first
        with pytest.raises(ssl.SSLCertVerificationError):
            await asked(address, ssl.create_default_context())


async def test_an_old_version_is_refused() -> None:
    async with served(ServerTls(None, read_terms("VersionTLS13", ""))) as (address, _):
        client = trusting_anybody()
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asked(address, client)
        assert (await asked(address, trusting_anybody()))[0] == b"HTTP/1.1 200 OK"


async def test_only_the_ciphers_that_were_named() -> None:
    name = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    async with served(ServerTls(None, read_terms("", name))) as (address, _):
        client = trusting_anybody()
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asked(address, client)
        client.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
        assert (await asked(address, client))[0] == b"HTTP/1.1 200 OK"


async def test_who_connects_and_falls_silent_keeps_nobody_out() -> None:
    """Handshakes are bounded, and the oldest gives way."""
    async with served(ServerTls(), Bounds(connections=2)) as (address, _):
        silent = [await asyncio.open_connection(address.host, address.port) for _ in range(5)]
        assert (await asked(address, trusting_anybody()))[0] == b"HTTP/1.1 200 OK"
        assert await silent[0][0].read() == b"", "it was let go"
        for _, writer in silent:
            writer.close()


async def test_a_client_without_tls_is_let_go() -> None:
    async with served(ServerTls()) as (address, _):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /hello HTTP/1.1\r\n\r\n")
        try:
            answer = await reader.read()
        except ConnectionResetError:
            answer = b""
        assert b"hello" not in answer
        writer.close()
        assert (await asked(address, trusting_anybody()))[0] == b"HTTP/1.1 200 OK"


async def test_a_directory_without_a_certificate_is_named(tmp_path: Path) -> None:
    missing = ServerTls(CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key"))
    with pytest.raises(ConfigError, match=rf"{tmp_path}/tls.crt.*{FLAG}"):
        async with served(missing):
            pass


async def test_an_address_that_is_taken_is_named_with_the_flag() -> None:
    async with served(ServerTls()) as (address, clock), certified(ServerTls(), clock, FLAG) as context:
        with pytest.raises(CannotListen, match=f"127.0.0.1:{address.port}.*--x"):
            async with Pages({}).listening(address, "--x", context):
                pass

"""The certificate of a router: read again when its files change, and never half."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from sandpool.kube.errors import ConfigError
from sandpool.loop.serving_tls import INTERVAL, Certificate, CertificateFiles
from sandpool.telemetry.router_metrics import RouterMetrics
from support.api.local_parts import until
from support.clocks.manual_clock import ManualClock
from support.kube.certificates import Authority


@asynccontextmanager
async def followed(certificate: Certificate) -> AsyncIterator[None]:
    task = asyncio.create_task(certificate.follow())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def shown(context: ssl.SSLContext, authority: Path) -> bytes:
    """The certificate that a client sees."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        client = ssl.create_default_context(cafile=str(authority))
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        return bytes(found)


async def test_a_renewed_certificate_comes_into_use(tmp_path: Path) -> None:
    authority, clock = Authority("test"), ManualClock()
    authority.write_ca(tmp_path / "ca")
    stem = tmp_path / "server"
    authority.write_server(stem, names=[], addresses=["127.0.0.1"])
    files = CertificateFiles(stem.with_suffix(".crt"), stem.with_suffix(".key"))
    registry = CollectorRegistry()
    certificate = Certificate(files, clock, RouterMetrics(registry).cert_reloads)
    value = registry.get_sample_value

    def count(outcome: str) -> float | None:
        return value("sandbox_router_cert_reloads_total", {"outcome": outcome})

    async with followed(certificate):
        first = await shown(certificate.context, tmp_path / "ca.crt")
        key = files.key.read_bytes()
        authority.write_server(stem, names=[], addresses=["127.0.0.1"])
        whole = files.key.read_bytes()
        files.key.write_bytes(key)  # half of the new pair
        clock.advance(INTERVAL)
        await until(lambda: count("failure") == 1)
        assert await shown(certificate.context, tmp_path / "ca.crt") == first
        files.key.write_bytes(whole)
        clock.advance(INTERVAL)
        await until(lambda: count("success") == 1)
        assert await shown(certificate.context, tmp_path / "ca.crt") != first
        clock.advance(INTERVAL)
        await asyncio.sleep(0)
        assert (count("success"), count("failure")) == (1, 1)


def test_what_is_no_certificate_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.crt").write_text("nothing")
    (tmp_path / "a.key").write_text("nothing")
    told = RouterMetrics(CollectorRegistry()).cert_reloads
    for name in ("a", "absent"):
        files = CertificateFiles(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        with pytest.raises(ConfigError, match=f"{name}.crt.*--tls-key-file"):
            Certificate(files, ManualClock(), told)

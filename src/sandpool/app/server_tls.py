"""HTTPS for our servers: the minimum TLS version, the ciphers, and the certificate.

Versions and ciphers have the same names as in Kubernetes' flags, so that a cluster's TLS profile can be passed on unchanged.
"""

from __future__ import annotations

import os
import platform
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from prometheus_client import Counter

from sandpool.base.clock import Clock
from sandpool.loop.lifetimes import beside
from sandpool.loop.serving_tls import Certificate, CertificateFiles, TlsTerms, server_context

RENEWED = 30 * 24 * 3600.0
"""Seconds after which a self-signed certificate is replaced. It is valid for much longer."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    files: CertificateFiles | None = None  # None: a self-signed certificate
    terms: TlsTerms = field(default_factory=TlsTerms)


class SelfSigned:
    """A self-signed certificate, in memory only: it protects against eavesdropping, but clients cannot verify the server."""

    def __init__(self, clock: Clock, terms: TlsTerms) -> None:
        self.context = server_context(terms)
        self._clock = clock
        self._make()

    async def follow(self) -> None:
        while True:
            await self._clock.sleep(RENEWED)
            self._make()

    def _make(self) -> None:
        from sandpool.controlplane.apiserver.access.authority import make_authority, make_server

        now = self._clock.now()
        names = tuple(dict.fromkeys(("localhost", platform.node() or "localhost")))
        pair = make_server(make_authority(now), names, now, subject="sandpool-metrics")
        # The ssl module loads certificates only from files. A memfd works even if the root file system is read-only.
        file = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(file, pair.key + pair.certificate)
            self.context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)


@asynccontextmanager
async def certified(
    tls: ServerTls | None, clock: Clock, flags: str, reloads: Counter | None = None
) -> AsyncIterator[ssl.SSLContext | None]:
    """Yields a server's TLS context and keeps its certificate up to date while the body runs. None for a server without TLS. `flags` names the
    command line flags in messages about the certificate."""
    if tls is None:
        yield None
        return
    shown = (
        SelfSigned(clock, tls.terms) if tls.files is None else Certificate(tls.files, clock, reloads, tls.terms, flags)
    )
    async with beside(certificate=shown.follow()):
        yield shown.context

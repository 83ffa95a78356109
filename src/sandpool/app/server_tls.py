"""HTTPS for servers of ours: the oldest version of TLS and the ciphers that they agree to, and the certificate that they show.

Versions and ciphers have the names that Kubernetes gives them in flags, so that the TLS profile of a cluster can be handed on as it is.
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
from sandpool.loop.serving_certificate import Certificate, CertificateFiles
from sandpool.loop.tls_terms import TlsTerms, server_context

RENEWED = 30 * 24 * 3600.0
"""Seconds after which a certificate that we signed ourselves is made anew. It is good for much longer."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    files: CertificateFiles | None = None  # None: a certificate that we sign ourselves
    terms: TlsTerms = field(default_factory=TlsTerms)


class SelfSigned:
    """A self-signed certificate, in memory only: nobody can listen, but clients cannot check whom they talk to."""

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
        # The library takes certificates from files only. This one has no name and is on no disk: the root file system may be read-only.
        file = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(file, pair.key + pair.certificate)
            self.context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)


@asynccontextmanager
async def certified(
    tls: ServerTls | None, clock: Clock, flags: str, told: Counter | None = None
) -> AsyncIterator[ssl.SSLContext | None]:
    """The context of a server while the body runs, its certificate kept up to date; None for a server without TLS. `flags` are what a
    message about the certificate should name."""
    if tls is None:
        yield None
        return
    shown = SelfSigned(clock, tls.terms) if tls.files is None else Certificate(tls.files, clock, told, tls.terms, flags)
    async with beside(certificate=shown.follow()):
        yield shown.context

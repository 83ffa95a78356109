"""The certificate of a server, read again when its files change: those who renew certificates replace files and tell nobody."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Counter

from sandpool.base.clock import Clock
from sandpool.kube.errors import ConfigError
from sandpool.loop.tls_terms import TlsTerms, server_context
from sandpool.telemetry.log import logger

log = logger(__name__)

INTERVAL = 30.0
"""Seconds between two looks."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    certificate: Path
    key: Path

    def seen(self) -> tuple[tuple[int, int, int], ...]:
        """What tells one state of the files from another. Raises OSError."""
        found = (path.stat() for path in (self.certificate, self.key))
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


class Certificate:
    """`context` is for servers; a new certificate holds for connections from then on. `flags` are what named the files."""

    def __init__(
        self,
        files: CertificateFiles,
        clock: Clock,
        told: Counter | None = None,
        terms: TlsTerms = TlsTerms(),
        flags: str = "--tls-cert-file and --tls-key-file",
    ) -> None:
        self.context = server_context(terms)
        self._files = files
        self._clock = clock
        self._told = told
        try:
            self._seen = files.seen()
            _load(self.context, files)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"{files.certificate}, {files.key}: no certificate and its key ({error}); name both in PEM with {flags}"
            ) from None

    async def follow(self) -> None:
        while True:
            await self._clock.sleep(INTERVAL)
            self._look()

    def _look(self) -> None:
        try:
            seen = self._files.seen()
            if seen == self._seen:
                return
            # Half of a pair must not come into use: what does not fit is tried on a context that nobody uses.
            _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._files)
            _load(self.context, self._files)
        except (OSError, ssl.SSLError) as error:
            self._count("failure")
            log.error("certificate not read", path=str(self._files.certificate), error=str(error))
            return
        self._seen = seen
        self._count("success")
        log.info("certificate read again", path=str(self._files.certificate))

    def _count(self, outcome: str) -> None:
        if self._told is not None:
            self._told.labels(outcome).inc()


def _load(context: ssl.SSLContext, files: CertificateFiles) -> None:
    context.load_cert_chain(files.certificate, files.key)

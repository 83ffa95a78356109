"""TLS of our own servers: the certificate, read again when its files change, and the versions and ciphers they accept."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Counter

from sandpool.base.clock import Clock
from sandpool.kube.errors import ConfigError
from sandpool.kube.tls import agree_cheaply
from sandpool.telemetry.log import logger

log = logger(__name__)

INTERVAL = 30.0
"""Seconds between two checks of the files."""
VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
BROKEN = ("VersionTLS10", "VersionTLS11")
"""Versions that the flag knows and that are no longer offered."""
SUITES = {
    f"TLS_ECDHE_{key}_WITH_{ours}": f"ECDHE-{key}-{theirs}"
    for key in ("ECDSA", "RSA")
    for ours, theirs in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("CHACHA20_POLY1305", "CHACHA20-POLY1305"),
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
    )
}
"""Ciphers up to TLS 1.2 by their IANA names, and their OpenSSL names."""
ALWAYS = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""Ciphers of TLS 1.3. They are always on: none of them is weak."""


@dataclass(frozen=True, slots=True)
class TlsTerms:
    """The TLS versions and ciphers that a server accepts."""

    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: tuple[str, ...] = ()  # OpenSSL names, up to TLS 1.2; none: our own choice


def read_terms(version: str, suites: str) -> TlsTerms:
    """Parses --tls-min-version and --tls-cipher-suites; empty: our own choice. ValueError says which one is wrong and what to write."""
    if version in BROKEN:
        raise ValueError(f"--tls-min-version {version}: TLS 1.0 and 1.1 are not offered; write VersionTLS12")
    if version and version not in VERSIONS:
        raise ValueError(f"--tls-min-version {version!r}: there is no such version; write {' or '.join(VERSIONS)}")
    minimum = VERSIONS[version] if version else TlsTerms().minimum
    names = [name for word in suites.split(",") if (name := word.strip())]
    if unknown := [name for name in names if name not in SUITES and name not in ALWAYS]:
        known = ", ".join((*SUITES, *sorted(ALWAYS)))
        raise ValueError(f"--tls-cipher-suites: {unknown[0]!r} is not offered; these are: {known}")
    return TlsTerms(minimum, tuple(dict.fromkeys(SUITES[name] for name in names if name in SUITES)))


def server_context(terms: TlsTerms) -> ssl.SSLContext:
    """A server context without a certificate."""
    context = agree_cheaply(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    context.minimum_version = terms.minimum
    context.set_alpn_protocols(["http/1.1"])
    if terms.ciphers:
        context.set_ciphers(":".join(terms.ciphers))
    return context


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the certificate of a server and its key are."""

    certificate: Path
    key: Path

    def seen(self) -> tuple[tuple[int, int, int], ...]:
        """A fingerprint of the files. Raises OSError."""
        found = (path.stat() for path in (self.certificate, self.key))
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


class Certificate:
    """A certificate that is read again when its files change. `context` is for servers; new connections get the new certificate. `flags` are the
    command-line flags that name the files."""

    def __init__(
        self,
        files: CertificateFiles,
        clock: Clock,
        reloads: Counter | None = None,
        terms: TlsTerms = TlsTerms(),
        flags: str = "--tls-cert-file and --tls-key-file",
    ) -> None:
        self.context = server_context(terms)
        self._files = files
        self._clock = clock
        self._reloads = reloads
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
            # A certificate and a key that do not match must not be used: try them on a spare context first.
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
        if self._reloads is not None:
            self._reloads.labels(outcome).inc()


def _load(context: ssl.SSLContext, files: CertificateFiles) -> None:
    context.load_cert_chain(files.certificate, files.key)

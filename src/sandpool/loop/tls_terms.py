"""What servers of ours agree to in TLS, read from the words that Kubernetes has for it. Pure."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from sandpool.kube.tls import agree_cheaply

VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
BROKEN = ("VersionTLS10", "VersionTLS11")
"""What the contract names as well, and nobody should offer any more."""
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
"""Ciphers up to TLS 1.2, and what the library calls them."""
ALWAYS = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""Those of TLS 1.3, which are not chosen one by one: there is none among them to leave out."""


@dataclass(frozen=True, slots=True)
class TlsTerms:
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: tuple[str, ...] = ()  # up to TLS 1.2, as the library calls them; none: our own choice


def read_terms(version: str, suites: str) -> TlsTerms:
    """From the values of --tls-min-version and --tls-cipher-suites; empty: our own. ValueError says which one is wrong and what to write."""
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
    """Without a certificate yet."""
    context = agree_cheaply(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    context.minimum_version = terms.minimum
    context.set_alpn_protocols(["http/1.1"])
    if terms.ciphers:
        context.set_ciphers(":".join(terms.ciphers))
    return context

"""Flags about HTTPS that `sandpool controller` and `sandpool router` share. Names and values are those of the contract."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group

from sandpool.cli.controller_flags import flag_of
from sandpool.cli.exits import USAGE, Exit

if TYPE_CHECKING:
    from sandpool.app.server_tls import ServerTls
    from sandpool.loop.serving_tls import TlsTerms

_tls = flag_of(Group("HTTPS", sort_key=6))
SECURE = "--metrics-secure-serving"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFlags:
    metrics_secure_serving: Annotated[
        bool, _tls("Serve /metrics over HTTPS instead of HTTP.", default=False, negative="")
    ] = False
    metrics_cert_dir: Annotated[
        Path | None,
        _tls(
            "A directory with tls.crt and tls.key for /metrics, reloaded when they change. Default: a self-signed certificate.",
            default=False,
        ),
    ] = None
    tls_min_version: Annotated[
        str, _tls("The oldest version of TLS: VersionTLS12 or VersionTLS13. Default: VersionTLS12.", default=False)
    ] = ""
    tls_cipher_suites: Annotated[
        str,
        _tls(
            "Ciphers up to TLS 1.2, separated by commas, by names such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256. Default: "
            "those with forward secrecy.",
            default=False,
        ),
    ] = ""

    def terms(self) -> TlsTerms:
        from sandpool.loop.serving_tls import read_terms

        try:
            return read_terms(self.tls_min_version, self.tls_cipher_suites)
        except ValueError as error:
            raise Exit(USAGE, str(error)) from None

    def metrics_tls(self, *, listens_with_tls: bool = False) -> ServerTls | None:
        """How /metrics is served; None: without TLS. `listens_with_tls`: another listener of this process serves HTTPS."""
        from sandpool.app.server_tls import ServerTls
        from sandpool.loop.serving_tls import CertificateFiles

        terms, directory = self.terms(), self.metrics_cert_dir
        if not self.metrics_secure_serving:
            given: dict[str, object] = {"--metrics-cert-dir": directory}
            if not listens_with_tls:
                given |= {"--tls-min-version": self.tls_min_version, "--tls-cipher-suites": self.tls_cipher_suites}
            if names := [name for name, value in given.items() if value]:
                raise Exit(USAGE, f"{', '.join(names)}: nothing is served over HTTPS without {SECURE}")
            return None
        files = None if directory is None else CertificateFiles(directory / "tls.crt", directory / "tls.key")
        return ServerTls(files, terms)

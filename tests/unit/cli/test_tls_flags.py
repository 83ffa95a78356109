"""Flags about HTTPS: what belongs together, and what is said when something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.main import run
from sandpool.cli.tls_flags import TlsFlags
from sandpool.loop.serving_tls import CertificateFiles


def test_metrics_are_plain_unless_asked() -> None:
    assert TlsFlags().metrics_tls() is None


def test_a_certificate_or_one_of_our_own() -> None:
    alone = TlsFlags(metrics_secure_serving=True).metrics_tls()
    assert alone is not None
    assert alone.files is None
    given = TlsFlags(metrics_secure_serving=True, metrics_cert_dir=Path("/certs")).metrics_tls()
    assert given is not None
    assert given.files == CertificateFiles(Path("/certs/tls.crt"), Path("/certs/tls.key"))


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (TlsFlags(metrics_cert_dir=Path("/certs")), "--metrics-cert-dir: "),
        (TlsFlags(tls_min_version="VersionTLS13"), "--tls-min-version: "),
        (
            TlsFlags(tls_min_version="VersionTLS13", tls_cipher_suites="TLS_AES_128_GCM_SHA256"),
            "--tls-min-version, --tls-cipher-suites: ",
        ),
    ],
)
def test_flags_without_https_are_refused(flags: TlsFlags, named: str) -> None:
    with pytest.raises(Exit, match=f"{named}nothing is served over HTTPS without --metrics-secure-serving") as raised:
        flags.metrics_tls()
    assert raised.value.code == USAGE


def test_a_router_with_https_has_a_use_for_them() -> None:
    assert TlsFlags(tls_min_version="VersionTLS13").metrics_tls(listens_with_tls=True) is None
    with pytest.raises(Exit, match="--metrics-cert-dir: "):
        TlsFlags(metrics_cert_dir=Path("/certs")).metrics_tls(listens_with_tls=True)


@pytest.mark.parametrize("command", ["controller", "router"])
def test_a_mistake_ends_the_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--metrics-secure-serving", "--tls-min-version=VersionTLS11"]
    assert run([command, "--kubeconfig", "/nowhere", *arguments]) == USAGE
    assert "write VersionTLS12" in capsys.readouterr().err

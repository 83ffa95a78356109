"""Versions and ciphers of TLS, by the names that Kubernetes gives them."""

from __future__ import annotations

import ssl

import pytest

from sandpool.loop.serving_tls import ALWAYS, SUITES, TlsTerms, read_terms, server_context


def test_nothing_said_is_our_own_choice() -> None:
    assert read_terms("", "") == TlsTerms()
    assert server_context(TlsTerms()).minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_version() -> None:
    assert read_terms("VersionTLS12", "").minimum == ssl.TLSVersion.TLSv1_2
    assert server_context(read_terms("VersionTLS13", "")).minimum_version == ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize("name", SUITES)
def test_every_cipher_is_one_of_the_library(name: str) -> None:
    context = server_context(read_terms("", name))
    old = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert old == [SUITES[name]]


def test_a_profile_of_a_cluster_is_taken_as_it_is() -> None:
    """Those of TLS 1.3 among them need no choice; spaces and repetitions do no harm."""
    profile = "TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    assert read_terms("", profile).ciphers == ("ECDHE-RSA-AES128-GCM-SHA256",)
    assert read_terms("", ",".join(ALWAYS)) == TlsTerms()


@pytest.mark.parametrize(
    ("version", "suites", "said"),
    [
        ("VersionTLS10", "", "--tls-min-version VersionTLS10: .*write VersionTLS12"),
        ("VersionTLS11", "", "--tls-min-version VersionTLS11: .*write VersionTLS12"),
        ("1.2", "", "--tls-min-version '1.2': .*VersionTLS12 or VersionTLS13"),
        ("", "ECDHE-RSA-AES128-GCM-SHA256", "--tls-cipher-suites: 'ECDHE-RSA.* these are: TLS_ECDHE"),
        ("VersionTLS13", "TLS_RSA_WITH_RC4_128_SHA", "--tls-cipher-suites: 'TLS_RSA_WITH_RC4_128_SHA' is not offered"),
    ],
)
def test_what_is_not_offered_is_named(version: str, suites: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_terms(version, suites)

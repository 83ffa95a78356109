"""Certificates for the servers of one test run: an authority, a server certificate and a signing key pair."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=2)


class Authority:
    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = builder.add_extension(_usage(signs_certificates=True), critical=True).sign(
            self._key, hashes.SHA256()
        )

    def write_ca(self, stem: Path) -> None:
        _write_certificate(stem, self._certificate)

    def write_client(self, stem: Path, name: str, *, ended: bool = False) -> None:
        """For who is called `name`, in a kubeconfig. `ended`: it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_common_name(name), self._name, key.public_key(), ended=ended)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        _write_certificate(stem, builder.add_extension(usage, critical=False).sign(self._key, hashes.SHA256()))
        _write_key(stem, key)

    def write_server(self, stem: Path, *, names: Sequence[str], addresses: Sequence[str], ended: bool = False) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = _builder(_common_name("kube-apiserver"), self._name, key.public_key(), ended=ended)
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority_key, critical=False)
        _write_certificate(stem, builder.sign(self._key, hashes.SHA256()))
        _write_key(stem, key)

    def write_signing_key(self, stem: Path) -> None:
        """A pair for service account tokens: the private half signs, the public half checks."""
        key = ec.generate_private_key(ec.SECP256R1())
        _write_key(stem, key)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        stem.with_suffix(".pub").write_bytes(public)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, ended: bool = False
) -> x509.CertificateBuilder:
    now = datetime.now(UTC) - (2 * LIFETIME if ended else timedelta(0))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_certificate(stem: Path, certificate: x509.Certificate) -> None:
    stem.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(stem: Path, key: ec.EllipticCurvePrivateKey) -> None:
    data = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = stem.with_suffix(".key")
    path.touch(mode=0o600)
    path.write_bytes(data)

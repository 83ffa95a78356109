from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sandpool.base.secret import Secret
from sandpool.kube.config import Pem, User
from sandpool.kube.expired import expired_credential

NOW = datetime(2026, 3, 1, tzinfo=UTC)
BEFORE, AFTER = NOW - timedelta(hours=1), NOW + timedelta(hours=1)


def token(end: datetime | None) -> User:
    claims = {} if end is None else {"exp": end.timestamp()}
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return User(token=Secret(f"e30.{part}.x"))


def certificate(end: datetime) -> User:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(end - timedelta(days=1))
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = Pem(data=Secret(made.public_bytes(encoding).decode()))
    return User(certificate=chain, key=Pem(data=Secret(private.decode())))


def test_what_is_over_is_named_with_its_end() -> None:
    assert expired_credential(token(BEFORE), NOW) == "the token expired at 2026-02-28T23:00:00Z"
    assert expired_credential(certificate(BEFORE), NOW) == "the client certificate expired at 2026-02-28T23:00:00Z"


@pytest.mark.parametrize(
    "user",
    [
        token(AFTER),
        token(None),
        certificate(AFTER),
        User(),
        User(token=Secret("opaque")),
        User(token=Secret("a.!!!.b")),
        User(token=Secret("a.bm9uc2Vuc2U.b")),
        User(username="me", password=Secret("word")),
    ],
)
def test_where_nothing_says_so_nothing_is_said(user: User) -> None:
    assert expired_credential(user, NOW) == ""


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "token") in expired_credential(User(token_file=tmp_path / "token"), NOW)

"""Tells from a certificate or token itself whether it has expired. For error messages only."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime

import msgspec

from sandpool.kube.config import User
from sandpool.kube.credentials import Credential, read_credential
from sandpool.kube.errors import ConfigError
from sandpool.model import times


def expired_credential(user: User, now: datetime) -> str:
    """`the client certificate expired at ...`; empty if nothing says so."""
    try:
        shown = read_credential(user)
    except ConfigError as error:
        return str(error)
    for what, end in (("the client certificate", _certificate_end(shown)), ("the token", _token_end(shown))):
        if end is not None and end <= now:
            return f"{what} expired at {times.seconds(end)}"
    return ""


def _certificate_end(credential: Credential) -> datetime | None:
    if credential.certificate is None:
        return None
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(credential.certificate.chain.reveal().encode()).not_valid_after_utc
    except ValueError:
        return None


class _Claims(msgspec.Struct):
    exp: float | None = None


def _token_end(credential: Credential) -> datetime | None:
    """The expiry of a token that is a JWT, as those of service accounts are. It is not verified: it is our own."""
    token = dict(credential.headers).get("Authorization", "").removeprefix("Bearer ")
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        end = msgspec.json.decode(text, type=_Claims).exp
        return None if end is None else datetime.fromtimestamp(end, UTC)
    except (binascii.Error, ValueError, msgspec.MsgspecError, OverflowError, OSError):
        return None

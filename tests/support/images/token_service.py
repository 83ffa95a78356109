"""A token service as docker-registry trusts it: signed tokens for one user, for what was asked."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from support.images.real_registry import basic

ISSUER, SERVICE = "tests", "registry of tests"


@dataclass(slots=True)
class TokenService:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    settings: dict[str, str]
    login: str

    def issue(self, repository: str, actions: str) -> str:
        chain = base64.b64encode(self.certificate.public_bytes(serialization.Encoding.DER)).decode()
        now = int(time.time())
        access = [{"type": "repository", "name": repository, "actions": actions.split(",")}]
        claims = {
            "iss": ISSUER, "sub": "alice", "aud": SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now, "jti": str(now), "access": access,
        }  # fmt: skip
        parts = [
            _encode(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ES256", "x5c": [chain]}, claims)
        ]
        signature = self.key.sign(".".join(parts).encode(), ec.ECDSA(hashes.SHA256()))
        r, s = utils.decode_dss_signature(signature)
        return ".".join((*parts, _encode(r.to_bytes(32, "big") + s.to_bytes(32, "big"))))

    async def handle(self, request: web.Request) -> web.Response:
        kind, repository, actions = request.query["scope"].split(":")
        if request.headers.get("Authorization") != self.login or request.query["service"] != SERVICE:
            return web.Response(status=401)
        assert kind == "repository"
        return web.json_response({"token": self.issue(repository, actions)})


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@asynccontextmanager
async def token_service(folder: Path, user: str, password: str) -> AsyncIterator[TokenService]:
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "bundle.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    service = TokenService(key, certificate, {}, basic(user, password))
    app = web.Application()
    app.router.add_get("/token", service.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        service.settings = {
            "realm": f"http://127.0.0.1:{port}/token",
            "service": SERVICE,
            "issuer": ISSUER,
            "rootcertbundle": str(folder / "bundle.pem"),
        }
        yield service
    finally:
        await runner.cleanup()

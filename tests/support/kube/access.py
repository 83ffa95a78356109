"""Who a controller is on a real cluster: the service account and the roles that an installation has, and nothing more."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from sandpool.install.rules import access
from sandpool.install.settings import CONTROLLER, Settings
from support.kube.server import KubeServer

NAMESPACE = "agent-sandbox-system"
USER = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER}"
LEEWAY = 60
"""Seconds that a server takes a token for longer than it says: clocks differ."""
ISSUER = "https://kubernetes.default.svc"
_PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """A kubeconfig that names a file with a token, as a pod has one."""

    kubeconfig: Path
    token: Path

    def show(self, token: str) -> None:
        """Replaces the token as kubelets do: whole or not at all."""
        fresh = self.token.with_suffix(".new")
        fresh.write_text(token)
        fresh.rename(self.token)


def install(server: KubeServer, settings: Settings = Settings(namespace=NAMESPACE)) -> Identity:
    """The namespace, the account and its roles. The token is good for an hour."""
    create(server, "/api/v1/namespaces", {"metadata": {"name": settings.namespace}})
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": CONTROLLER, "namespace": settings.namespace},
    }
    for body in (account, *access(settings)):
        path = _PATHS[body["kind"]].format(namespace=body["metadata"].get("namespace", ""))
        create(server, path, body)
    identity = Identity(server.folder / "controller.kubeconfig", server.folder / "controller.token")
    identity.token.write_text(signed_token(server, settings.namespace, 3600))
    write_kubeconfig(server, identity.kubeconfig, {"tokenFile": str(identity.token)}, settings.namespace)
    return identity


def create(server: KubeServer, path: str, body: dict[str, Any]) -> None:
    """Unless it is there."""
    try:
        server.request("POST", path, body)
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise ValueError(f"POST {path}: {error.read().decode(errors='replace')}") from error


def write_kubeconfig(server: KubeServer, path: Path, user: dict[str, Any], namespace: str) -> None:
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"] = [{"name": "controller", "user": user}]
    config["contexts"][0]["context"].update(user="controller", namespace=namespace)
    path.write_text(yaml.safe_dump(config))


def signed_token(server: KubeServer, namespace: str, seconds: float) -> str:
    """As the server itself would sign it, but accepted only for so long: servers give out none shorter than ten minutes."""
    account = server.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/{CONTROLLER}")
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": [ISSUER],
        "sub": f"system:serviceaccount:{namespace}:{CONTROLLER}",
        "iat": now - 600,
        "nbf": now - 600,
        "exp": now + int(seconds) - LEEWAY,
        "kubernetes.io": {
            "namespace": namespace,
            "serviceaccount": {"name": CONTROLLER, "uid": account["metadata"]["uid"]},
        },
    }
    key = serialization.load_pem_private_key((server.folder / "accounts.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    text = f"{_part(json.dumps({'alg': 'ES256'}).encode())}.{_part(json.dumps(claims).encode())}"
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{_part(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

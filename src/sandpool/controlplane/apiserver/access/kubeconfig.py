"""The kubeconfig that lets kubectl and every other client in: CA and token inside, readable by its owner only."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from sandpool.controlplane.apiserver.access.files import write_secret

NAME = "sandpool"


def kubeconfig(url: str, authority: bytes, token: str, namespace: str = "default") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": NAME,
                "cluster": {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()},
            }
        ],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
        "current-context": NAME,
        "preferences": {},
    }


def write_kubeconfig(path: Path, url: str, authority: bytes, token: str, namespace: str = "default") -> None:
    content = yaml.safe_dump(kubeconfig(url, authority, token, namespace), sort_keys=False)
    write_secret(path, content.encode())

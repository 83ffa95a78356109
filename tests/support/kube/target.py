"""Where the real kube-apiserver of this run is: the cluster of SANDPOOL_KUBECONFIG, else one that is started here."""

from __future__ import annotations

import base64
import contextlib
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from conformance.rest.exchange import Target
from support.kube import server as kube_server

VARIABLE = "SANDPOOL_KUBECONFIG"


@contextlib.contextmanager
def real_target() -> Iterator[Target]:
    given = os.environ.get(VARIABLE)
    if given:
        yield target_of(Path(given))
        return
    with kube_server.running() as server:
        yield target_of(server.kubeconfig)


def target_of(kubeconfig: Path) -> Target:
    """Reads a kubeconfig whose user has a token: all that raw requests need."""
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    if "certificate-authority-data" in cluster:
        tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    else:
        tls = ssl.create_default_context(cafile=str(kubeconfig.parent / cluster["certificate-authority"]))
    if "token" not in user:
        raise ValueError(f"{kubeconfig}: the user {context['user']!r} has no token, which the raw REST suite needs")
    return Target(url=cluster["server"].rstrip("/"), token=user["token"], tls=tls)


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)

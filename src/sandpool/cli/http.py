"""Small requests of the command line to the local API server, with what the kubeconfig says and nothing installed."""

from __future__ import annotations

import base64
import binascii
import http.client
import ssl
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
import yaml

from sandpool.kube.errors import ConfigError, Unreachable, from_status
from sandpool.kube.nearby import Running

JSON = "application/json"


def request(running: Running, method: str, path: str, body: Any = None, timeout: float = 30.0) -> Any:
    """One JSON request as the cluster's admin. Raises what the server says is wrong."""
    trust, token = _admin(read_kubeconfig(running), running.kubeconfig)
    address = urlsplit(running.api)
    connection = http.client.HTTPSConnection(cast(str, address.hostname), address.port, timeout=timeout, context=trust)
    headers = {"Authorization": f"Bearer {token}", "Accept": JSON, "Content-Type": JSON}
    try:
        connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(
            f"{running.api} does not answer: {error}. Is process {running.pid} stopped? `sandpool status` looks again."
        ) from error
    finally:
        connection.close()
    if response.status >= 400:
        raise from_status(response.status, _object(content))
    return _object(content) if response.getheader("Content-Type", "").startswith(JSON) else content.decode()


def read_kubeconfig(running: Running) -> Any:
    """The admin's kubeconfig, as the running cluster wrote it."""
    try:
        return yaml.safe_load(Path(running.kubeconfig).read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _broken(running.kubeconfig) from error


def _admin(config: Any, path: str) -> tuple[ssl.SSLContext, str]:
    try:
        ca = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        return ssl.create_default_context(cadata=ca), str(config["users"][0]["user"]["token"])
    except (LookupError, TypeError, ValueError, binascii.Error, ssl.SSLError) as error:
        raise _broken(path) from error


def _broken(path: str) -> ConfigError:
    return ConfigError(f"{path} is missing or is not what `sandpool up` wrote; restart the cluster to write it again")


def answers(running: Running) -> bool:
    """Whether the API server says that it is ready."""
    try:
        return bool(request(running, "GET", "/readyz", timeout=5.0) == "ok")
    except Exception:  # whatever is wrong, the answer is no
        return False


def _object(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return {}

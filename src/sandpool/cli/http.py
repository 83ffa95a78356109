"""Requests to the local cluster as its admin, with the SDK's client and the kubeconfig that the cluster wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandpool.kube.errors import ConfigError, Unreachable

if TYPE_CHECKING:
    from sandpool.kube.local_discovery import Running

JSON = "application/json"


def request(running: Running, method: str, path: str, body: Any = None, timeout: float = 30.0) -> Any:
    """The JSON or the text of a response. Raises ApiError for what the server refuses."""
    from sandpool.sdk._sync.connection import Connection
    from sandpool.sdk.config import Config

    data = b"" if body is None else json.dumps(body).encode()
    headers = (("Accept", JSON), *([("Content-Type", JSON)] if data else []))
    try:
        with Connection(Config(kubeconfig=running.kubeconfig)) as connection:
            answer = connection.cluster.request(method, path, headers, data, timeout)
    except ConfigError as error:
        raise _broken(running.kubeconfig) from error
    except Unreachable as error:
        raise type(error)(
            f"{running.api} does not answer: {error}. Is process {running.pid} stopped? `sandpool status` checks it again."
        ) from error
    return answer.json() if (answer.header("content-type") or "").startswith(JSON) else answer.body.decode()


def answers(running: Running) -> bool:
    """Whether the API server reports ready."""
    try:
        return bool(request(running, "GET", "/readyz", timeout=5.0) == "ok")
    except Exception:  # whatever is wrong, it is not ready
        return False


def read_kubeconfig(running: Running) -> Any:
    """The admin's kubeconfig, as the running cluster wrote it."""
    import yaml

    try:
        return yaml.safe_load(Path(running.kubeconfig).read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _broken(running.kubeconfig) from error


def _broken(path: str) -> ConfigError:
    return ConfigError(f"{path} is missing or is not what `sandpool up` wrote; restart the cluster to write it again")

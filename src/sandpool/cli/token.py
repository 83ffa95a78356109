"""`sandpool token`: prints credentials for one namespace."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import quote

import yaml
from cyclopts import Parameter

from sandpool.cli.exits import NOT_FOUND, USAGE, Exit
from sandpool.cli.flags import DataDirFlag, data_dir
from sandpool.cli.http import read_kubeconfig, request
from sandpool.kube.errors import NotFound

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration: str) -> int:
    """`900s`, `15m`, `24h`, `7d`."""
    match = re.fullmatch(r"(\d+)([smhd])", duration)
    if match is None:
        raise Exit(USAGE, f"{duration!r} is not a duration; write for example 15m, 24h or 7d")
    return int(match[1]) * _UNITS[match[2]]


def token(
    *,
    namespace: Annotated[
        str, Parameter(name=["--namespace", "-n"], help="The namespace that the credentials are for.")
    ],
    account: Annotated[str, Parameter(help="The service account to authenticate as.")] = "default",
    duration: Annotated[str, Parameter(help="Validity: 15m, 24h, 7d; at least 10 minutes.")] = "24h",
    output: Annotated[
        Literal["kubeconfig", "token"],
        Parameter(name=["--output", "-o"], help="A whole kubeconfig, or the bare token."),
    ] = "kubeconfig",
    data_dir_: DataDirFlag = None,
) -> None:
    """Print credentials for one namespace that expire. Deleting the service account revokes them at once."""
    directory = data_dir(data_dir_)
    running = directory.read_running()
    if running is None:
        raise Exit(NOT_FOUND, f"no cluster is running in {directory.root}. Start one with `sandpool up`.")
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds(duration), "audiences": []},
    }
    space, name = quote(namespace, safe=""), quote(account, safe="")
    try:
        answer = request(running, "POST", f"/api/v1/namespaces/{space}/serviceaccounts/{name}/token", body)
    except NotFound as error:
        raise Exit(
            NOT_FOUND, f"namespace {namespace!r} has no service account {account!r}; create it, or name another"
        ) from error
    if output == "token":
        print(answer["status"]["token"])
        return
    config = read_kubeconfig(running)
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    config["contexts"][0]["context"]["namespace"] = namespace
    print(yaml.safe_dump(config, sort_keys=False), end="")

"""The gRPC service, through the stubs that clients have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.network.boxd_daemon import TOKEN, Daemon, boxd

EXPECTED: dict[str, Any] = {
    "execute": [3, "b c\n", "err\n", 3_000_000, -1],
    "start": ["init", True, "got it\n", 4],
    "terminal": -1,
    "refusals": [
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "PERMISSION_DENIED",
        "PERMISSION_DENIED",
        "NOT_FOUND",
        "NOT_FOUND",
        "NOT_FOUND",
    ],
}


def client(scenario: str, port: int, token: str = TOKEN) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "support.network.grpc_client", scenario, str(port), token]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def grpc_port(box: Daemon) -> int:
    return box.announced["gRPC"]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with boxd(tmp_path_factory.mktemp("root"), "--grpc-port", "0") as daemon:
        yield daemon


@pytest.mark.parametrize("scenario", EXPECTED)
def test_what_clients_see(box: Daemon, scenario: str) -> None:
    done = client(scenario, grpc_port(box))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == EXPECTED[scenario]


def test_without_the_token_nothing_is_run(box: Daemon) -> None:
    done = client("execute", grpc_port(box), "wrong")
    assert "UNAUTHENTICATED" in done.stderr

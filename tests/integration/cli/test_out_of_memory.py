"""A cluster that gets no more memory refuses, or ends and is started again; it never stays and fails at everything."""

from __future__ import annotations

import resource
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPSConnection
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from sandpool.controlplane.data_dir import DataDir
from sandpool.controlplane.memory_pressure import SELDOM
from sandpool.kube.local_discovery import Running
from support.product.cluster import COMMAND, Cluster, stop

MAPS = "/api/v1/namespaces/default/configmaps"
SLACK = 200 << 20
"""Bytes that it may still take: so few that it looks often how many are left, and not so few that they are gone before it has looked once."""
LONGEST = 150.0
QUIET = ("--port", "0", "--backend", "hollow", "--no-pool")


class Client:
    """A connection for each request, as many small programs do it. What is answered is a code, and how long to wait."""

    def __init__(self, data_dir: Path, running: Running) -> None:
        config = yaml.safe_load((data_dir / "kubeconfig").read_text())
        self._token = config["users"][0]["user"]["token"]
        self._where = urlsplit(running.api)
        self._tls = ssl.create_default_context(cafile=str(data_dir / "access" / "ca.crt"))

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        assert self._where.hostname is not None
        line = HTTPSConnection(self._where.hostname, self._where.port, timeout=20, context=self._tls)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            line.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            answer = line.getresponse()
            answer.read()
            return answer.status, answer.headers.get("Retry-After", "")
        except (OSError, HTTPException):
            return 0, ""
        finally:
            line.close()


def limit(pid: int, slack: int | None) -> None:
    size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    most = resource.RLIM_INFINITY if slack is None else size + slack
    resource.prlimit(pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    time.sleep(2 * SELDOM)  # it cannot be told: it looks for itself, this often while it has plenty


def named(name: str, size: int = 0) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"x": "y" * size}}


@contextmanager
def foreground(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    command = [*COMMAND, "up", "--data-dir", str(folder), *QUIET]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert any("is ready at" in line for line in process.stderr)
            running = DataDir(folder).read_running()
            assert running is not None
            yield process, Client(folder, running)
        finally:
            process.kill()


@pytest.mark.long
def test_it_refuses_and_then_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    acknowledged, codes = set(), set[tuple[int, str]]()
    deadline = time.monotonic() + LONGEST
    with foreground(tmp_path / "data") as (process, client):
        limit(process.pid, SLACK)
        for number in range(10_000):
            codes.add(told := client.ask("POST", MAPS, named(f"map-{number}", 500_000)))
            if told[0] == 201:
                acknowledged.add(f"map-{number}")
            if process.poll() is not None or time.monotonic() > deadline:
                break
        assert process.stderr is not None
        assert process.wait(30) == 75, process.stderr.read()
        assert (503, "2") in codes, codes
        assert codes <= {(201, ""), (503, "2"), (0, "")}, codes
        said = process.stderr.read()
        assert "Traceback" not in said
        assert said.splitlines()[-1].startswith("sandpool: out of memory: its own API refused or did not answer")
    with foreground(tmp_path / "data") as (_, client):
        assert all(client.ask("GET", f"{MAPS}/{name}")[0] == 200 for name in acknowledged)


def test_it_goes_on_when_there_is_memory_again(tmp_path: Path) -> None:
    with foreground(tmp_path / "data") as (process, client):
        limit(process.pid, SLACK)
        deadline = time.monotonic() + LONGEST
        numbers = count()
        while client.ask("POST", MAPS, named(f"map-{next(numbers)}", 500_000)) != (503, "2"):
            assert time.monotonic() < deadline
        assert client.ask("GET", "/livez")[0] == 200
        limit(process.pid, None)
        while client.ask("POST", MAPS, named("after"))[0] != 201:
            assert process.poll() is None
            assert time.monotonic() < deadline
        assert client.ask("GET", "/readyz")[0] == 200


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_detached_one_starts_again_by_itself(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data")
    cluster.up(*QUIET[2:])
    try:
        before = cluster.running
        log = DataDir(cluster.data_dir).log
        client = Client(cluster.data_dir, before)
        assert client.ask("POST", MAPS, named("kept"))[0] == 201
        limit(before.pid, SLACK)
        deadline = time.monotonic() + LONGEST
        numbers = count()
        while "It restarts in" not in log.read_text():
            client.ask("POST", MAPS, named(f"map-{next(numbers)}", 500_000))
            assert time.monotonic() < deadline, log.read_text()
        limit(before.pid, None)
        while (again := DataDir(cluster.data_dir).read_running()) is None or again.started == before.started:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        assert again.pid == before.pid
        assert Client(cluster.data_dir, again).ask("GET", f"{MAPS}/kept")[0] == 200
    finally:
        stop(cluster)

"""A real `sandpool up` in a process of its own, driven through its command line and its REST API."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sandpool.cli import http, restart
from sandpool.controlplane.data_dir import DataDir
from sandpool.kube.local_discovery import Running
from support.product.forked_commands import Prepared

COMMAND = [sys.executable, "-m", "sandpool"]
START = 60.0
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims"


def sandpool(*arguments: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """One run of the command; with `check`, a failure shows what it said."""
    ran = sandpool_bytes(*arguments, **options)
    done = subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())
    if check and done.returncode != 0:
        raise AssertionError(
            f"sandpool {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done


def sandpool_bytes(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """One run of the command, as it is, with the `input` that is given; without any, it reads from /dev/null."""
    command = [*COMMAND, *arguments]
    if Prepared.now and Prepared.now.fits(options):
        return subprocess.CompletedProcess(command, *Prepared.now.run(arguments, 90, options))
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    return subprocess.run(command, capture_output=True, timeout=90, check=False, **options)


@dataclass(slots=True)
class Cluster:
    data_dir: Path

    @property
    def flag(self) -> tuple[str, str]:
        return ("--data-dir", str(self.data_dir))

    def up(self, *more: str) -> None:
        """Returns when its API answers, as `sandpool up --detach` does."""
        arguments = ("up", *self.flag, "--port", "0", *more)
        if Prepared.now is None:
            sandpool(*arguments, "--detach")
        else:
            self._start(Prepared.now, arguments)

    def _start(self, prepared: Prepared, arguments: tuple[str, ...]) -> None:
        """Without a new interpreter, which takes longer to load the modules than the cluster to start."""
        directory = DataDir(self.data_dir)
        directory.prepare()
        pid = prepared.start(arguments, directory.log, {"env": {**os.environ, restart.VARIABLE: "0"}})
        ended = os.pidfd_open(pid)
        try:
            deadline = time.monotonic() + START
            while not (running := directory.read_running()) or running.pid != pid or not http.answers(running):
                gone = select.select([ended], [], [], 0.01)[0]
                assert not gone, f"sandpool {' '.join(arguments)} ended:\n{directory.log.read_text()}"
                if time.monotonic() > deadline:
                    signal.pidfd_send_signal(ended, signal.SIGKILL)
                    raise AssertionError(f"the API does not answer:\n{directory.log.read_text()}")
        finally:
            os.close(ended)

    def down(self) -> None:
        sandpool("down", *self.flag)

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = msgspec.json.decode(sandpool("status", *self.flag, "-o", "json").stdout)
        return answer

    @property
    def running(self) -> Running:
        running = DataDir(self.data_dir).read_running()
        assert running is not None
        return running

    def request(self, method: str, path: str, body: Any = None) -> Any:
        return http.request(self.running, method, path, body)

    def create_claim(self, name: str, pool: str = "python") -> dict[str, Any]:
        answer: dict[str, Any] = self.request("POST", CLAIMS, claim(name, pool))
        return answer

    def claims(self) -> dict[str, dict[str, Any]]:
        return {item["metadata"]["name"]: item for item in self.request("GET", CLAIMS)["items"]}

    def kill(self) -> None:
        """`kill -9`, and wait until the kernel has let go of the data directory."""
        pid = self.running.pid
        os.kill(pid, signal.SIGKILL)
        while DataDir(self.data_dir).holder() is not None:
            os.sched_yield()


def claim(name: str, pool: str = "python") -> dict[str, Any]:
    return {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {"name": name},
        "spec": {"warmPoolRef": {"name": pool}},
    }


@contextmanager
def running_cluster(data_dir: Path, *flags: str) -> Iterator[Cluster]:
    """A cluster that is up, and surely gone afterwards."""
    cluster = Cluster(data_dir)
    cluster.up(*flags)
    try:
        yield cluster
    finally:
        stop(cluster)


def stop(cluster: Cluster) -> None:
    directory = DataDir(cluster.data_dir)
    if directory.holder() is not None or any(
        directory.node.glob("runtime/*/shims/*")
    ):  # sandboxes outlive a killed cluster
        done = sandpool("down", *cluster.flag, check=False)
        assert done.returncode in (0, 3), done.stderr  # 3: it was about to end anyway

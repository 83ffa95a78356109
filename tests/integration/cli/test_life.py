"""`sandpool up`, `status` and `down`, with real processes and real crashes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from sandpool.base.errors import SandpoolError
from sandpool.controlplane.data_dir import DataDir
from support.product.cluster import COMMAND, Cluster, running_cluster, sandpool, stop


def test_up_status_down(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data") as cluster:
        status = cluster.status()
        assert {"pid", "api", "kubeconfig", "data_dir"} <= status.keys()
        assert status["healthy"] is True
        assert status["data_dir"] == str(tmp_path / "data")
        os.kill(status["pid"], 0)
        kubeconfig = Path(status["kubeconfig"])
        assert kubeconfig == tmp_path / "data" / "kubeconfig"
        assert kubeconfig.stat().st_mode & 0o777 == 0o600
        assert status["api"].startswith("https://127.0.0.1:")
    gone = sandpool("status", *cluster.flag, check=False)
    assert gone.returncode == 3
    assert "no cluster is running" in gone.stderr
    assert sandpool("down", *cluster.flag, check=False).returncode == 3


def test_a_second_up_says_who_holds_the_directory(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data") as cluster:
        for more in ([], ["--detach"]):
            second = sandpool("up", *cluster.flag, "--port", "0", *more, check=False)
            assert second.returncode == 1
            assert f"in use by process {cluster.running.pid}" in second.stderr
            assert "sandpool down" in second.stderr
        assert cluster.status()["healthy"] is True


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for more in ([], ["--detach"]):
            refused = sandpool("up", "--data-dir", str(tmp_path / "data"), "--port", str(port), *more, check=False)
            assert refused.returncode == 1
            assert f"port {port}" in refused.stderr
            assert "Traceback" not in refused.stderr
    assert DataDir(tmp_path / "data").holder() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_foreground_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    command = [*COMMAND, "up", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("is ready at https://127.0.0.1:" in line for line in process.stderr)
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(30) == 0
    assert "Traceback" not in rest
    assert DataDir(tmp_path / "data").holder() is None


def test_every_acknowledged_object_survives_kill_9(tmp_path: Path) -> None:
    """Writers run while the process is killed: what was acknowledged is there, unchanged, after the restart."""
    cluster = Cluster(tmp_path / "data")
    acknowledged: dict[str, str] = {}
    try:
        for round_ in range(3):
            cluster.up()
            enough = threading.Event()
            writers = [
                threading.Thread(target=_write, args=(cluster, f"r{round_}-w{number}", acknowledged, enough))
                for number in range(4)
            ]
            for writer in writers:
                writer.start()
            assert enough.wait(60)
            cluster.kill()
            for writer in writers:
                writer.join(60)
        cluster.up()
        found = {name: item["metadata"]["uid"] for name, item in cluster.claims().items()}
        assert len(acknowledged) >= 60
        assert acknowledged.items() <= found.items()
    finally:
        stop(cluster)


def _write(cluster: Cluster, prefix: str, acknowledged: dict[str, str], enough: threading.Event) -> None:
    for number in range(10_000):
        name = f"{prefix}-{number}"
        try:
            uid = cluster.create_claim(name)["metadata"]["uid"]
        except (SandpoolError, AssertionError):
            return  # it is gone, as this test intends
        acknowledged[name] = uid
        if number == 20:
            enough.set()


def test_bad_flags_are_usage_errors() -> None:
    for arguments in (
        ["up", "--port", "x"],
        ["up", "--port", "70000"],
        ["up", "--otlp-endpoint", "collector:4318"],
        ["fly"],
        ["status", "-o", "xml"],
    ):
        done = sandpool(*arguments, check=False)
        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr


def test_help_and_version_answer() -> None:
    everything = sandpool("--help").stdout
    for command in ("up", "down", "status", "backup", "restore", "token", "crds"):
        assert command in everything
        assert sandpool(command, "--help").stdout
    assert sandpool("--version").stdout.strip()

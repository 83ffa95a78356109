"""Ctrl-C in the midst of a run: claims, namespace, temporary cluster and its data are gone, and the shell is told."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from support.product.cluster import COMMAND, Cluster, sandpool

RATE = ("rate", "--rate", "20", "--for", "100s", "--pool-size", "20")


def interrupted(arguments: list[str], number: signal.Signals, **options: object) -> tuple[int, str, set[int]]:
    """Runs until claims are driven, then sends a signal. Also answers which processes it had started."""
    command = [*COMMAND, "load", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as child:  # type: ignore[call-overload]
        said = []
        for line in child.stderr:
            said.append(line)
            if line.startswith("driving claims"):
                break
        started = {each.pid for each in psutil.Process(child.pid).children(recursive=True)}
        child.send_signal(number)
        _, rest = child.communicate(timeout=60)
    return child.returncode, "".join(said) + rest, started


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("untouched")
def test_a_running_cluster_is_left_as_it_was(cluster: Cluster, number: signal.Signals) -> None:
    code, said, _ = interrupted([*RATE, *cluster.flag], number)
    assert code == 130, said
    assert "Traceback" not in said


def test_a_temporary_cluster_is_removed(tmp_path: Path) -> None:
    code, said, started = interrupted([*RATE, "--fresh"], signal.SIGINT, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert code == 130, said
    assert "Traceback" not in said
    assert started, "the cluster was a process of its own"
    assert not any(psutil.pid_exists(pid) for pid in started)
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_cluster_is_removed_at_the_end(tmp_path: Path) -> None:
    done = sandpool("load", "burst", "--claims", "3", "--fresh", "-q", env={**os.environ, "TMPDIR": str(tmp_path)})
    assert "3 of 3 ready" in done.stdout
    assert "temporary local cluster, backend hollow" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_cluster_that_cannot_start_says_why(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "SANDPOOL_RUNSC": "/absent/runsc"}
    done = sandpool("load", "burst", "--claims", "1", "--fresh", "--backend", "gvisor", "-q", env=env, check=False)
    assert done.returncode == 1
    assert "did not start" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []

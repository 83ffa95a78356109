"""A first command and files in each sandbox, through the router of a cluster with real processes."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from support.product.cluster import sandpool

pytestmark = pytest.mark.root
FLAGS = ("--claims", "3", "--pool-size", "3", "--fresh", "--backend", "namespaces", "-q", "-o", "json")


def test_the_time_to_the_first_output_and_that_of_files_are_measured(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    work = ("--exec", "echo here", "--files", "300Ki")
    found = msgspec.json.decode(sandpool("load", "burst", *FLAGS, *work, env=env).stdout)
    assert (found["ready"], found["failed"], found["conditions"]["backend"]) == (3, 0, "namespaces")
    assert found["first_output_p50_ms"] >= found["p50_ms"]
    assert found["files_p50_ms"] > 0
    assert found["load"]["files_bytes"] == 300 << 10
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_command_that_says_nothing_has_failed(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = sandpool("load", "burst", *FLAGS, "--exec", "true", env=env, check=False)
    found = msgspec.json.decode(done.stdout)
    assert done.returncode == 1
    assert found["first_output_p50_ms"] is None
    assert found["errors_by_kind"] == {"exec: CommandError": 3}
    assert "without any output" in found["error_examples"]["exec: CommandError"]
    assert found["released"] == 3
    assert list(tmp_path.iterdir()) == []

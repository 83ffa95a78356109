"""What the README and a how-to tell a reader to type works, typed in that order. The tutorial is in test_examples.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.cluster import Cluster, stop
from support.kubectl import kubectl_path

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.kubectl

BEFORE_A_ROLLOUT = """
sandpool up --detach
export KUBECONFIG=$SANDPOOL_DATA_DIR/kubeconfig
kubectl apply -f examples/01-pool-and-claim/template.yaml -f examples/01-pool-and-claim/pool.yaml -f - <<END
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata: {name: box}
spec: {podTemplate: {spec: {containers: [{name: main, image: host, command: [sleep, infinity]}]}}}
END
kubectl wait --for=condition=Ready sandboxwarmpool/python sandbox/box
"""


def commands(document: str) -> str:
    """Every block of commands, without those that make the environment which the test runs in already."""
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    return re.sub(r"^make .*\n", "", "\n".join(blocks), flags=re.MULTILINE)


def typed(script: str, tmp_path: Path) -> str:
    """As in a shell that stops at the first failure. Nothing of the machine's own clusters is seen."""
    path = f"{Path(sys.executable).parent}:{Path(kubectl_path()).parent}:{os.environ['PATH']}"
    environment = {
        "PATH": path,
        "HOME": str(tmp_path),
        "SANDPOOL_DATA_DIR": str(tmp_path / "data"),
        "SANDPOOL_PORT": "0",
    }
    try:
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        stop(Cluster(tmp_path / "data"))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_five_minutes(tmp_path: Path) -> None:
    said = typed(commands("README.md"), tmp_path)
    assert "sandboxclaim.extensions.agents.x-k8s.io/mine condition met" in said
    assert "decided: ask pool python" in said


def test_rolling_out_a_template(tmp_path: Path) -> None:
    said = typed(BEFORE_A_ROLLOUT + commands("docs/how-to/roll-out-a-template.md"), tmp_path)
    assert "sandbox.agents.x-k8s.io/box condition met" in said
    assert said.count("patched") == 5

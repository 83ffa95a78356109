"""What the README shows works: every example, and the demo with kubectl and without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.cluster import running_cluster
from support.kubectl import kubectl_path

ROOT = Path(__file__).parents[2]


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_pool_and_a_claim_without_kubectl(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data") as cluster:
        environment = {"KUBECONFIG": str(tmp_path / "data" / "kubeconfig"), "HOME": str(tmp_path)}
        said = run([sys.executable, "examples/01-pool-and-claim/apply.py"], environment)
        assert "SandboxClaim/mine created" in said
        assert "pools: python" in said
        assert cluster.claims().keys() == {"mine"}


@pytest.mark.parametrize("with_kubectl", [True, False])
def test_the_demo(tmp_path: Path, with_kubectl: bool) -> None:
    tools = tmp_path / "bin"  # only what the script needs, so that it finds kubectl where it should and nowhere else
    tools.mkdir()
    for name in ("bash", "dirname", "mktemp", "rm"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        (tools / name).symlink_to(found)
    for name in ("python", "sandpool"):
        (tools / name).symlink_to(Path(sys.executable).parent / name)
    if with_kubectl:
        (tools / "kubectl").symlink_to(kubectl_path())
    environment = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "LANG": os.environ.get("LANG", "C"),
    }
    said = run(["bash", "examples/demo.sh"], environment)
    assert ("SandboxClaim/mine created" in said) != with_kubectl
    assert ("sandboxclaim.extensions.agents.x-k8s.io/mine created" in said) == with_kubectl
    assert said.rstrip().endswith("$ sandpool down")
    assert not list(tmp_path.glob("tmp.*"))

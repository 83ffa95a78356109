"""What the README shows works: every example, and the demo with kubectl and without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import Cluster, running_cluster, stop
from support.kubectl import kubectl_path

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/run.sh"))


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path / "data", "--backend", "namespaces") as cluster:
        yield cluster


def environment(tmp_path: Path) -> dict[str, str]:
    """kubectl on the PATH, the cluster's kubeconfig, and nothing of the machine's."""
    path = f"{Path(kubectl_path()).parent}:{os.environ['PATH']}"
    return {"PATH": path, "KUBECONFIG": str(tmp_path / "data" / "kubeconfig"), "HOME": str(tmp_path)}


def after(said: str, command: str) -> list[list[str]]:
    """The table that a command of the script printed, row by row."""
    rows = said.partition(f"$ {command}\n")[2].partition("\n$ ")[0].splitlines()
    return [row.split() for row in rows if not row.startswith("#")]


def test_every_example_is_tested_here() -> None:
    assert EXAMPLES == ["01-pool-and-claim", "02-rollout"]


@pytest.mark.kubectl
def test_a_pool_and_a_claim(cluster: Cluster, tmp_path: Path) -> None:
    said = run(["bash", "examples/01-pool-and-claim/run.sh"], environment(tmp_path))
    assert after(said, "kubectl get sandboxwarmpool python")[1][:3] == ["python", "3", "3"]
    (claim,) = after(said, "kubectl get sandboxclaim mine")[1:]
    assert claim[:2] == ["mine", "True"]
    boxes = {row[0]: row[1] for row in after(said, "kubectl get sandboxes")[1:]}
    assert len(boxes) == 4
    assert set(boxes.values()) == {"True"}
    assert claim[2] in boxes
    assert cluster.claims() == {}
    left = said.rpartition("$ kubectl get sandboxes\n")[2].splitlines()[1:]
    assert {row.split()[0] for row in left} == boxes.keys() - {claim[2]}


@pytest.mark.kubectl
def test_a_rollout(cluster: Cluster, tmp_path: Path) -> None:
    said = run(["bash", "examples/02-rollout/run.sh"], environment(tmp_path))
    tables = re.findall(r"^NAME +OWNER +RELEASE\n((?:(?![$#]).*\n)+)", said, re.MULTILINE)
    old, new, claimed = [[row.split() for row in table.splitlines()] for table in tables]
    assert [row[1:] for row in old] == [["SandboxWarmPool", "1"]] * 4
    assert [row[1:] for row in new] == [["SandboxWarmPool", "2"]] * 4
    assert [row[1:] for row in claimed] == [["SandboxClaim", "1"]]
    assert not {row[0] for row in old} & {row[0] for row in (*new, *claimed)}


def test_a_claim_without_kubectl(cluster: Cluster, tmp_path: Path) -> None:
    settings = {"KUBECONFIG": str(tmp_path / "data" / "kubeconfig"), "HOME": str(tmp_path)}
    first = run([sys.executable, "examples/01-pool-and-claim/claim.py"], settings)
    assert "pool python: 3 of 3 ready" in first
    found = re.search(r"claim mine has sandbox (\S+) at (127\.\S+), Ready after [0-9.]+ ms", first)
    assert found is not None, first
    status = cluster.claims()["mine"]["status"]
    assert (status["sandbox"]["name"], status["sandbox"]["podIPs"]) == (found[1], [found[2]])
    again = run([sys.executable, "examples/01-pool-and-claim/claim.py"], settings)
    assert f"claim mine has sandbox {found[1]} at {found[2]}\n" in again


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
    settings = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "LANG": os.environ.get("LANG", "C"),
    }
    said = run(["bash", "examples/demo.sh"], settings)
    boxes = re.findall(r"^claim mine has sandbox (\S+) at", said, re.MULTILINE)
    assert len(boxes) == 2
    assert boxes[0] == boxes[1], "the claim kept its sandbox over kill -9"
    assert re.search(r", Ready after [0-9.]+ ms$", said, re.MULTILINE)
    assert ("sandboxclaim.extensions.agents.x-k8s.io/mine" in said) == with_kubectl
    assert said.rstrip().endswith("$ sandpool down")
    assert not list(tmp_path.glob("tmp.*"))


@pytest.mark.kubectl
def test_the_tutorial(tmp_path: Path) -> None:
    """Every command of the first five minutes, in order, but for making the environment, which this test runs in."""
    page = (ROOT / "docs/tutorial/first-claim.md").read_text()
    blocks = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    commands = "".join(blocks).replace("make .venv/.ready\n", "").replace("export PATH=$PWD/.venv/bin:$PATH\n", "")
    assert commands.count("sandpool up --detach") == 2
    settings = environment(tmp_path) | {"SANDPOOL_DATA_DIR": str(tmp_path / "data"), "SANDPOOL_PORT": "0"}
    settings["PATH"] = f"{Path(sys.executable).parent}:{settings['PATH']}"
    try:
        said = run(["bash", "-euo", "pipefail", "-c", commands], settings)
    finally:
        stop(Cluster(tmp_path / "data"))
    assert re.search(r"^mine +True +python-", said, re.MULTILINE)
    assert re.search(r"^python +5 +5 ", said, re.MULTILINE)
    assert "Ready after" in said

"""Every example works, and so do the demo and the tour. What documents show is in test_documents.py."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sandpool.install.first_pool import template_body
from support.kube.kubectl import kubectl_path
from support.product.cluster import Cluster, running_cluster

ROOT = Path(__file__).parents[2]


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Without a pool: these examples bring their own."""
    with running_cluster(tmp_path / "data", "--backend", "namespaces") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """As `sandpool up` starts it."""
    data = tmp_path_factory.mktemp("examples") / "data"
    with running_cluster(data, "--backend", "namespaces", "--pool", "python=3") as cluster:
        yield cluster


def example(name: str, pool: Cluster, tmp_path: Path) -> str:
    """As an ordinary program finds its cluster, and nothing else of this machine."""
    settings = {"SANDPOOL_DATA_DIR": str(pool.data_dir), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    said = run([sys.executable, f"examples/{name}"], settings)
    assert pool.claims() == {}, "it gave back what it had claimed"
    return said


def environment(tmp_path: Path) -> dict[str, str]:
    """kubectl on the PATH, the cluster's kubeconfig, and nothing of the machine's."""
    path = f"{Path(kubectl_path()).parent}:{os.environ['PATH']}"
    return {"PATH": path, "KUBECONFIG": str(tmp_path / "data" / "kubeconfig"), "HOME": str(tmp_path)}


def after(said: str, command: str) -> list[list[str]]:
    """The table that a command of the script printed, row by row."""
    rows = said.partition(f"$ {command}\n")[2].partition("\n$ ")[0].splitlines()
    return [row.split() for row in rows if not row.startswith("#")]


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


def test_its_template_is_that_of_the_first_pool() -> None:
    """Whoever applies it over the one that `sandpool up` made has lost nothing."""
    body = yaml.safe_load((ROOT / "examples/01-pool-and-claim/template.yaml").read_text())
    (container,) = body["spec"]["podTemplate"]["spec"]["containers"]
    assert container.pop("ports")
    assert {"metadata": body["metadata"], "spec": body["spec"]} == template_body()


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


def test_an_agent_that_mends_its_code(pool: Cluster, tmp_path: Path) -> None:
    said = example("03-agent-loop/agent.py", pool, tmp_path)
    assert "--- exit code 1\nTraceback" in said
    assert "ValueError: could not convert string to float: 'n/a'\n--- exit code 0\n" in said
    assert said.endswith("=== ada spent the most: 62.75\n")


def test_many_programs_at_once(pool: Cluster, tmp_path: Path) -> None:
    said = example("04-parallel-evaluation/evaluate.py", pool, tmp_path)
    *grades, last = said.splitlines()
    assert grades == [" 17  passed", " 10  AssertionError", "  2  no answer in time", "  1  FileNotFoundError"]
    assert last.startswith("30 programs in 30 sandboxes, ")


def test_a_web_app(pool: Cluster, tmp_path: Path) -> None:
    first, again = example("05-web-app/serve.py", pool, tmp_path).splitlines()
    assert "'hello': 'from a sandbox', 'path': '/', 'visits': 1, 'host': 'python-" in first
    assert "'path': '/again', 'visits': 2" in again


def demo(tmp_path: Path) -> subprocess.Popen[str]:
    settings = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "SANDPOOL_BACKEND": "hollow"}
    return subprocess.Popen(
        [sys.executable, "-u", "examples/demo.py"], env=settings, cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_the_demo(tmp_path: Path) -> None:
    said, complaints = demo(tmp_path).communicate(timeout=100)
    assert complaints == ""
    assert re.search(r"^ +[0-9,]+ ms  a sandbox claimed: nobody else can get it$", said, re.MULTILINE)
    assert re.search(r"^ +[0-9,]+ ms  the first instruction in it: print\(6 \* 7\) said 42$", said, re.MULTILINE)
    assert "HELLO FROM /WORKSPACE/HELLO.PY" in said
    rows = {line[2:36].strip(): line[36:68].strip() for line in said.splitlines() if line.startswith("  ")}
    assert (rows["runs as user"], rows["holds capabilities"], rows["has network interfaces"]) == ("1000", "0", "lo")
    assert (rows["can gain privileges"], rows["has its system calls filtered"]) == ("no", "on")
    assert {"user", "pid", "mnt", "net"} <= set(rows["has namespaces of its own"].split())
    assert rows["read a file of this machine"] == "No such file or directory"
    assert rows["signal a process of this machine"] == "No such process"
    assert rows["become root"] == rows["mount a file system"] == "Operation not permitted"
    assert rows["reach the network directly"] == "Network is unreachable"
    assert rows["memory"] == "2Gi"
    assert re.search(r"^ +[0-9,]+ ms  stopped: the sandboxes are gone, and so is the cluster$", said, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("after", "sent", "code"),
    [("a sandbox claimed", signal.SIGINT, 1), ("a cluster on this machine", signal.SIGTERM, 143)],
)
def test_a_demo_that_is_stopped_leaves_nothing(tmp_path: Path, after: str, sent: int, code: int) -> None:
    child = demo(tmp_path)
    assert child.stdout is not None
    while after not in child.stdout.readline():
        assert child.poll() is None
    child.send_signal(sent)
    _, complaints = child.communicate(timeout=60)
    assert child.returncode == code, complaints
    assert "Traceback" not in complaints
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("with_kubectl", [True, False])
def test_the_tour(tmp_path: Path, with_kubectl: bool) -> None:
    tools = tmp_path / "bin"  # only what the script needs, so that it finds kubectl where it should and nowhere else
    tools.mkdir()
    for name in ("bash", "dirname", "mktemp", "rm", "sleep"):
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
    said = run(["bash", "examples/tour.sh"], settings)
    boxes = re.findall(r"^claim mine has sandbox (\S+) at", said, re.MULTILINE)
    assert len(boxes) == 2
    assert boxes[0] == boxes[1], "the claim kept its sandbox over kill -9"
    assert re.search(r", Ready after [0-9.]+ ms$", said, re.MULTILINE)
    assert ("sandboxclaim.extensions.agents.x-k8s.io/mine" in said) == with_kubectl
    assert bool(re.search(r"^42 as process \d of \d$", said, re.MULTILINE)) == with_kubectl, (
        "few processes are seen there"
    )
    assert said.rstrip().endswith("$ sandpool down")
    assert not list(tmp_path.glob("tmp.*"))

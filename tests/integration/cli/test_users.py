"""Who may run it, and who may read what it wrote."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.model.kinds import PODS
from support.kube.kubectl import Kubectl
from support.node.first_pool import LOOK, SEEN
from support.product.cluster import running_cluster
from support.product.cluster_watch import became
from support.product.nobody import Nobody
from support.product.nobody import nobody as a_user
from support.product.ordinary_user import NOBODY

DEMO = Path(__file__).parents[3] / "examples/demo.py"
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def nobody() -> Iterator[Nobody]:
    with a_user() as user:
        yield user


@pytest.mark.ordinary_user
@root
def test_an_ordinary_user_can_run_it(nobody: Nobody) -> None:
    """The same life as root's, as a user who owns nothing but the data directory."""
    said = nobody.sandpool("up", "--detach", "--port", "0", "--no-pool").stderr
    try:
        unheld = json.loads(nobody.sandpool("status", "-o", "json").stdout)["unheld"]
        classes = json.loads(nobody.sandpool("get", "runtimeclass", "namespaces", "-o", "json").stdout)
        enforced = classes["metadata"]["annotations"]["sandpool.dev/enforced"].split(",")
        assert unheld == [name for name in ("cpu", "memory", "pids", "storage") if name not in enforced]
        assert ("NOT ENFORCED on this machine: limits of " in said) == bool(unheld), said
        assert ("CPU" in said, "memory" in said) == ("cpu" in unheld, "memory" in unheld), said
        assert ("not held" in nobody.sandpool("status").stdout) == bool(unheld)
        nobody.sandpool("backup", str(nobody.home / "backup.db"))
    finally:
        nobody.sandpool("down")
    assert (nobody.data / "kubeconfig").stat().st_uid == NOBODY


@pytest.mark.ordinary_user
@pytest.mark.kubectl
@root
def test_an_ordinary_user_has_the_first_pool(nobody: Nobody, tmp_path: Path) -> None:
    nobody.sandpool("up", "--detach", "--port", "0")
    try:
        pods = became(nobody.data, PODS, lambda pods: len(pods) == 3 and all(pod.ready for pod in pods.values()))
        kubectl = Kubectl(nobody.data / "kubeconfig", tmp_path)
        assert kubectl("exec", min(pods), "--", "python3", "-c", LOOK) == SEEN
    finally:
        nobody.sandpool("down")


@pytest.mark.ordinary_user
@root
def test_an_ordinary_user_sees_the_demo(nobody: Nobody) -> None:
    demo = nobody.home / "demo.py"
    nobody.copy(DEMO, demo)
    said = nobody.python(str(demo))
    assert "print(6 * 7) said 42" in said
    assert re.search(r"^  holds capabilities +0 +0$", said, re.MULTILINE)
    assert re.search(r"^  become root +(Invalid argument|Operation not permitted)$", said, re.MULTILINE)
    assert "IT WORKED" not in said
    for limit in ("cpu", "memory"):  # shown as a limit, or said not to be one
        shown = re.search(rf"^  {limit} +[0-9]", said, re.MULTILINE) is not None
        assert shown != bool(re.search(rf"Limits of [^.]*{limit}[^.]*\s+are\s+not\s+held", said)), said
    assert list(nobody.home.glob("sandpool-demo-*")) == []


@pytest.mark.root
@root
def test_others_may_read_nothing_of_the_data_directory(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data") as cluster:
        secret = [cluster.data_dir, *cluster.data_dir.rglob("*.key"), *cluster.data_dir.rglob("*token*")]
        for path in (*secret, cluster.data_dir / "kubeconfig", cluster.data_dir / "store.db"):
            assert path.stat().st_mode & 0o077 == 0, path
        os.chmod(tmp_path, 0o755)
        for folder in tmp_path.parents:
            if folder.stat().st_mode & 0o001 == 0:
                return  # a wall further up already keeps everybody out
        probe = subprocess.run(
            ["cat", str(cluster.data_dir / "kubeconfig")], user=NOBODY, group=NOBODY, extra_groups=[],
            capture_output=True, check=False,
        )  # fmt: skip
        assert probe.returncode != 0

"""Who may run it, and who may read what it wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import sandpool as package
from sandpool.model.kinds import PODS
from support.cluster import running_cluster
from support.cluster_watch import became
from support.first_pool import LOOK, SEEN
from support.kubectl import Kubectl

DEMO = Path(__file__).parents[3] / "examples/demo.py"
NOBODY = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@dataclass(frozen=True, slots=True)
class Nobody:
    """A user who owns nothing but a home."""

    home: Path
    packages: str

    @property
    def data(self) -> Path:
        return self.home / "data"

    def sandpool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "sandpool", *arguments)

    def python(self, *arguments: str) -> str:
        return self.run(*arguments).stdout

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [_python(), *arguments], user=NOBODY, group=NOBODY, extra_groups=[], cwd=self.home,
            env={
                "PYTHONPATH": self.packages, "HOME": str(self.home), "PATH": os.environ["PATH"],
                "SANDPOOL_DATA_DIR": str(self.data), "TMPDIR": str(self.home),
            },
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done


@pytest.fixture(scope="module")
def nobody() -> Iterator[Nobody]:
    home = Path("/tmp") / f"sandpool-nobody-{os.getpid()}"
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    try:
        yield Nobody(home, _readable_copy(home))
    finally:
        shutil.rmtree(home)


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
        assert ("NOT HELD on this machine: limits of " in said) == bool(unheld), said
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
    shutil.copy(DEMO, demo)
    demo.chmod(0o644)
    said = nobody.python(str(demo))
    assert "print(6 * 7) said 42" in said
    assert re.search(r"^  holds capabilities +0 +0$", said, re.MULTILINE)
    assert re.search(r"^  become root +(Invalid argument|Operation not permitted)$", said, re.MULTILINE)
    assert "IT WORKED" not in said
    for limit in ("cpu", "memory"):  # shown as a limit, or said not to be one
        shown = re.search(rf"^  {limit} +[0-9]", said, re.MULTILINE) is not None
        assert shown != bool(re.search(rf"Limits of [^.]*{limit}[^.]*\s+are\s+not\s+held", said)), said
    assert list(nobody.home.glob("sandpool-demo-*")) == []


def _python() -> str:
    """An interpreter of this very version that another user may start."""
    for candidate in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        version = "import sys; print(sys.version_info[:2])"
        try:
            said = subprocess.run(
                [candidate, "-c", version], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True,
                check=False,
            ).stdout  # fmt: skip
        except OSError:
            continue
        if said.strip() == str(sys.version_info[:2]):
            return candidate
    pytest.skip("no interpreter of this version that another user may start")


def _readable_copy(home: Path) -> str:
    """The package and what it needs, where that user can read it whoever owns the checkout."""
    site = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    target = home / "site"
    shutil.copytree(site, target, ignore=shutil.ignore_patterns("mypy*", "schemathesis*", "kubernetes*", "hypothesis*"))
    shutil.copytree(Path(package.__file__).parent, target / "sandpool", dirs_exist_ok=True)
    for path in (target, *target.rglob("*")):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    return str(target)


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

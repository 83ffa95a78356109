"""Who may run it, and who may read what it wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sandpool as package
from support.cluster import running_cluster

NOBODY = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.mark.ordinary_user
@root
def test_an_ordinary_user_can_run_it(tmp_path: Path) -> None:
    """The same life as root's, as a user who owns nothing but the data directory."""
    home = Path("/tmp") / f"sandpool-nobody-{os.getpid()}"
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    try:
        readable = _readable_copy(home)
        environment = {"PYTHONPATH": readable, "HOME": str(home), "PATH": os.environ["PATH"]}
        for arguments in (
            ["up", "--detach", "--port", "0"],
            ["status"],
            ["backup", str(home / "backup.db")],
            ["down"],
        ):
            done = subprocess.run(
                [_python(), "-m", "sandpool", *arguments], user=NOBODY, group=NOBODY, extra_groups=[], cwd=home,
                env=environment | {"SANDPOOL_DATA_DIR": str(home / "data")}, capture_output=True, text=True,
                timeout=90, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{arguments}: {done.stderr}"
        assert (home / "data" / "kubeconfig").stat().st_uid == NOBODY
    finally:
        shutil.rmtree(home)


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

"""A data directory that was damaged: `sandpool up` says what is missing, and starts without it only when told to."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.product.cluster import Cluster, running_cluster, sandpool, stop
from support.storage.damage import execute, flip

CLAIM = "extensions.agents.x-k8s.io/sandboxclaims/default/{}"


def refused(cluster: Cluster, *said: str, flags: tuple[str, ...] = ()) -> None:
    """It does not start, says all that without a traceback, and changes nothing."""
    before = {file.name: file.read_bytes() for file in cluster.data_dir.glob("store.db*") if "shm" not in file.name}
    done = sandpool("up", *cluster.flag, "--port", "0", "--backend", "none", *flags, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for words in (*said, "sandpool restore FILE", "sandpool up --accept-loss"):
        assert words in done.stderr
    assert {name: (cluster.data_dir / name).read_bytes() for name in before} == before


CLAIMS = ("kept", "damaged", "other")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with claims, and a backup of them beside it. Making it takes longer than all that is done to its copies."""
    folder = tmp_path_factory.mktemp("stopped")
    with running_cluster(folder / "data", "--backend", "none") as cluster:
        for name in CLAIMS:
            cluster.create_claim(name)
        sandpool("backup", str(folder / "backup"), *cluster.flag)
        cluster.down()
    return folder


@pytest.fixture(scope="module")
def killed(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """One whose process was killed after one more claim, and the revision of that."""
    folder = tmp_path_factory.mktemp("killed")
    with a_copy(stopped, folder) as cluster:
        cluster.up("--backend", "none")
        last = int(cluster.create_claim("lost")["metadata"]["resourceVersion"])
        cluster.kill()
    return folder, last


@contextmanager
def a_copy(folder: Path, into: Path) -> Iterator[Cluster]:
    subprocess.run(["cp", "-a", str(folder / "data"), str(into / "data")], check=True)
    cluster = Cluster(into / "data")
    try:
        yield cluster
    finally:
        stop(cluster)


def test_garbage_in_a_value(stopped: Path, tmp_path: Path) -> None:
    with a_copy(stopped, tmp_path) as cluster:
        store = cluster.data_dir / "store.db"
        execute(store, "UPDATE log SET value = ? WHERE key = ?", b"garbage", CLAIM.format("damaged"))
        refused(cluster, f"{CLAIM.format('damaged')}: revision", "its checksum is wrong")
        refused(cluster, "its checksum is wrong", flags=("--detach",))
        status = sandpool("status", *cluster.flag, check=False)
        assert (status.returncode, "Start one with `sandpool up`" in status.stderr) == (3, True)
        backup = sandpool("backup", str(tmp_path / "backup"), *cluster.flag, check=False)
        assert backup.returncode == 1
        assert CLAIM.format("damaged") in backup.stderr
        cluster.up("--backend", "none", "--accept-loss")
        assert cluster.claims().keys() == {"kept", "other"}
        assert (cluster.data_dir / "damaged-1" / "store.db").stat().st_mode & 0o077 == 0
        again = int(cluster.create_claim("damaged")["metadata"]["resourceVersion"])
        cluster.down()
        cluster.up("--backend", "none")  # from now on without the flag
        assert int(cluster.claims()["damaged"]["metadata"]["resourceVersion"]) == again


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_write_ahead_log_that_does_not_hold_what_was_acknowledged(
    killed: tuple[Path, int], tmp_path: Path, damage: str
) -> None:
    folder, last = killed
    with a_copy(folder, tmp_path) as cluster:
        log = cluster.data_dir / "store.db-wal"
        if damage == "gone":
            log.unlink()
        elif damage == "cut":
            log.write_bytes(log.read_bytes()[:1000])
        else:
            flip(log, 8 * 5000)
        refused(cluster, f"revision {last} was acknowledged and cannot be found: store.db-wal is")
        cluster.up("--backend", "none", "--accept-loss")
        assert cluster.claims().keys() == set(CLAIMS)
        assert int(cluster.create_claim("next")["metadata"]["resourceVersion"]) > last


def test_no_false_alarm_after_a_kill(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data", "--backend", "none") as cluster:
        for number in range(2):
            cluster.create_claim(f"claim-{number}")
            cluster.kill()
            cluster.up("--backend", "none")
            assert len(cluster.claims()) == number + 1


def test_a_store_that_is_gone_while_volumes_are_there(stopped: Path, tmp_path: Path) -> None:
    with a_copy(stopped, tmp_path) as cluster:
        volume = cluster.data_dir / "node" / "volumes" / "claims" / "0a1b2c3d-0000-0000-0000-000000000000"
        volume.mkdir(parents=True)
        (volume / "precious").write_text("data")
        for name in ("store.db", "store.db-mark"):
            (cluster.data_dir / name).unlink()
        done = sandpool("up", *cluster.flag, "--port", "0", "--backend", "none", check=False)
        assert done.returncode == 1
        assert "store.db is damaged" in done.stderr
        assert "the file is missing, though access, kubeconfig" in done.stderr
        cluster.up("--backend", "none", "--accept-loss")
        assert cluster.claims() == {}
        kept = cluster.data_dir / "damaged-1" / "volumes" / "claims" / volume.name
        assert (kept / "precious").read_text() == "data"
        assert not volume.exists()


def test_a_damaged_directory_is_restored_from_a_backup(killed: tuple[Path, int], stopped: Path, tmp_path: Path) -> None:
    folder, last = killed
    file = stopped / "backup"
    with a_copy(folder, tmp_path) as cluster:
        (cluster.data_dir / "store.db-wal").unlink()
        store = cluster.data_dir / "store.db"
        content = store.read_bytes()
        store.write_bytes(content[: len(content) // 2])
        refused(cluster)
        said = sandpool("restore", str(file), *cluster.flag).stdout
        assert str(cluster.data_dir / "damaged-1") in said
        assert (cluster.data_dir / "damaged-1" / "store.db").read_bytes() == content[: len(content) // 2]
        cluster.up("--backend", "none")
        assert cluster.claims().keys() == set(CLAIMS)
        assert int(cluster.claims()["kept"]["metadata"]["resourceVersion"]) > last  # revisions never go back


@pytest.mark.parametrize("running", [True, False])
def test_a_damaged_backup(tmp_path: Path, running: bool) -> None:
    file = tmp_path / "backup"
    with running_cluster(tmp_path / "data", "--backend", "none") as cluster:
        for name in ("first", "second", "third"):
            cluster.create_claim(name)
        sandpool("backup", str(file), *cluster.flag)
        shutil.copy(file, tmp_path / "whole")
        content = file.read_bytes()
        flip(file, 8 * content.index(b'"name":"second"'))
        for name in ("first", "second"):
            cluster.request(
                "DELETE", f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims/{name}"
            )
        cluster.create_claim("extra")
        if not running:
            cluster.down()
        done = sandpool("restore", str(file), *cluster.flag, check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert f"({CLAIM.format('second')}) at byte" in done.stderr
        assert "--salvage" in done.stderr
        said = sandpool("restore", "--salvage", str(file), *cluster.flag).stdout
        assert f"left out: {CLAIM.format('second')}" in said
        assert "nothing was removed" in said
        if not running:
            cluster.up("--backend", "none")
        assert cluster.claims().keys() == {"first", "third", "extra"}
        sandpool("restore", str(tmp_path / "whole"), *cluster.flag)
        assert cluster.claims().keys() == {"first", "second", "third"}

"""`sandpool backup` and `restore`, with the cluster running and not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.product.cluster import CLAIMS, Cluster, running_cluster, sandpool


def test_backup_and_restore_while_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    with running_cluster(tmp_path / "data", "--backend", "none") as cluster:
        kept = cluster.create_claim("kept")["metadata"]
        cluster.create_claim("changed")
        cluster.create_claim("lost")
        sandpool("backup", str(file), *cluster.flag)
        assert file.stat().st_mode & 0o077 == 0
        cluster.request("DELETE", f"{CLAIMS}/lost")
        cluster.create_claim("extra")
        later = int(cluster.create_claim("later")["metadata"]["resourceVersion"])
        said = sandpool("restore", str(file), *cluster.flag).stdout
        claims = cluster.claims()
        assert claims.keys() == {"kept", "changed", "lost"}
        assert claims["kept"]["metadata"] == kept  # untouched objects keep even their revision
        assert int(claims["lost"]["metadata"]["resourceVersion"]) > later  # revisions never go back
        assert "2 removed" in said


def test_restore_while_it_does_not_run(tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    with running_cluster(tmp_path / "data", "--backend", "none") as cluster:
        cluster.create_claim("kept")
        sandpool("backup", str(file), *cluster.flag)
        cluster.create_claim("extra")
        cluster.down()
        sandpool("backup", str(tmp_path / "later.db"), *cluster.flag)  # works on a stopped one as well
        sandpool("restore", str(file), *cluster.flag)
        cluster.up()
        assert cluster.claims().keys() == {"kept"}


def test_a_backup_moves_to_another_machine(tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    with running_cluster(tmp_path / "one") as one:
        one.create_claim("traveller")
        sandpool("backup", str(file), *one.flag)
    with running_cluster(tmp_path / "two") as two:
        sandpool("restore", str(file), *two.flag)
        assert two.claims().keys() == {"traveller"}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all that must leave it as it is."""
    with running_cluster(tmp_path_factory.mktemp("untouched") / "data", "--backend", "none") as cluster:
        cluster.create_claim("kept")
        yield cluster


@pytest.mark.parametrize("content", [None, b"", b"not a database, but long enough to look like a file of something"])
def test_what_is_no_backup_is_refused_and_nothing_changes(
    untouched: Cluster, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "backup.db"
    if content is not None:
        file.write_bytes(content)
    before = untouched.claims()
    refused = sandpool("restore", str(file), *untouched.flag, check=False)
    assert refused.returncode == 1
    assert str(file) in refused.stderr
    assert "Traceback" not in refused.stderr
    assert untouched.claims() == before


def test_a_backup_never_overwrites_a_file(untouched: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("keep me")
    refused = sandpool("backup", str(file), *untouched.flag, check=False)
    assert refused.returncode == 1
    assert "already exists" in refused.stderr
    assert file.read_text() == "keep me"

"""What users do wrong, and what goes wrong around them: one clear line each, never a traceback."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.controlplane.data_dir import DataDir
from support.product.cluster import COMMAND, Cluster, running_cluster, sandpool, stop


def refused(*arguments: str, code: int = 1, **options: object) -> str:
    """What the command says; it must fail with this code, in one line that begins with its name."""
    done = sandpool(*arguments, check=False, **options)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stderr.startswith("sandpool: ")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all that leaves it as it is; its path has a space."""
    with running_cluster(tmp_path_factory.mktemp("mistakes") / "my data") as cluster:
        yield cluster


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in (["up", "--port", "0"], ["status"], ["down"], ["restore", "x"], ["token", "-n", "default"]):
        said = refused(*command, "--data-dir", str(tmp_path / "file"))
        assert str(tmp_path / "file") in said or "no backup" in said


def test_a_directory_that_cannot_be_named() -> None:
    assert "--data-dir" in refused("status", "--data-dir", "~nobody-of-this-name/data", code=2)
    too_long = "x" * 300
    assert "File name too long" in refused("up", "--data-dir", f"/tmp/{too_long}", "--port", "0")


def test_an_empty_variable_is_as_good_as_none(tmp_path: Path) -> None:
    environment = os.environ | {"SANDPOOL_DATA_DIR": "", "XDG_DATA_HOME": str(tmp_path / "share")}
    said = refused("status", code=3, env=environment, cwd=tmp_path)
    assert str(tmp_path / "share" / "sandpool") in said


def test_an_empty_host_is_refused_at_once(tmp_path: Path) -> None:
    assert "--host" in refused("up", "--data-dir", str(tmp_path / "data"), "--port", "0", "--host", "", code=2)
    assert not (tmp_path / "data").exists()


def test_a_store_that_is_none(tmp_path: Path) -> None:
    directory = DataDir(tmp_path / "data")
    directory.prepare()
    directory.store.write_bytes(b"\xff" * 5000)
    flags = ("--data-dir", str(directory.root))
    for command in (["up", "--port", "0"], ["up", "--port", "0", "--detach"], ["backup", str(tmp_path / "b")]):
        assert "is not a sandpool store: move it away" in refused(*command, *flags)
    assert directory.store.read_bytes() == b"\xff" * 5000


@pytest.mark.parametrize("how_many", [3, 4])
def test_several_ups_at_once_in_a_fresh_directory(tmp_path: Path, how_many: int) -> None:
    """One of them gets it; the others say who has it, and not that the directory is somebody else's."""
    cluster = Cluster(tmp_path / "data")
    command = [*COMMAND, "up", *cluster.flag, "--port", "0", "--detach"]
    racers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(how_many)]
    said = [racer.communicate(timeout=90)[1] for racer in racers]
    try:
        assert sorted(racer.returncode for racer in racers) == [0] + [1] * (how_many - 1)
        losers = [text for racer, text in zip(racers, said, strict=True) if racer.returncode]
        assert all("is in use by" in text and "sandpool down" in text for text in losers), losers
        assert cluster.status()["healthy"] is True
    finally:
        stop(cluster)


def test_ports_that_are_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        data = ("--data-dir", str(tmp_path / "data"), "--backend", "process")
        said = refused("up", "--detach", *data, "--port", port)
        assert said.startswith(f"sandpool: the cluster did not start: cannot listen on 127.0.0.1 port {port}: ")
        assert "--port (0 takes a free one)" in said
        said = refused("up", "--detach", *data, "--port", "0", "--router-port", port)
        assert said.startswith(
            f"sandpool: the cluster did not start: the router cannot listen on 127.0.0.1 port {port}: "
        )
        assert "--router-port (0 takes a free one)" in said


def test_a_space_in_the_path_can_be_pasted(module_cluster: Cluster) -> None:
    said = sandpool("up", *module_cluster.flag, "--port", "0", check=False).stderr
    assert f"sandpool down --data-dir {shlex.quote(str(module_cluster.data_dir))}" in said


def test_backups_that_cannot_be_written_or_read(module_cluster: Cluster, tmp_path: Path) -> None:
    flags = module_cluster.flag
    assert "nofolder" in refused("backup", str(tmp_path / "nofolder" / "b.db"), *flags)
    assert "cannot be written" in refused("backup", "/proc/b.db", *flags)
    assert "already exists" in refused("backup", str(tmp_path), *flags)
    assert "is not a file" in refused("restore", str(tmp_path), *flags)
    newer = tmp_path / "newer"
    newer.write_bytes(b"sandpool-backup 7\nand something that nobody knows yet")
    assert "is a backup of version 7, this program reads up to version 2" in refused("restore", str(newer), *flags)


def test_names_that_are_none(module_cluster: Cluster) -> None:
    flags = module_cluster.flag
    for arguments in (["-n", "a/b c"], ["-n", "nope"], ["-n", "default", "--account", "x y"], ["-n", "ü"]):
        assert "has no service account" in refused("token", *arguments, *flags, code=3)
    assert "is not a duration" in refused("token", "-n", "default", "--duration", "long", *flags, code=2)


def test_a_kubeconfig_that_was_overwritten_or_removed(module_cluster: Cluster) -> None:
    kubeconfig = module_cluster.data_dir / "kubeconfig"
    written = kubeconfig.read_bytes()
    try:
        for content in (b"{", b"", b"clusters: 5", b"\xff\xfe"):
            kubeconfig.write_bytes(content)
            assert "restart the cluster" in refused("token", "-n", "default", *module_cluster.flag)
        kubeconfig.unlink()
        assert "restart the cluster" in refused("token", "-n", "default", *module_cluster.flag)
    finally:
        kubeconfig.touch(0o600)
        kubeconfig.write_bytes(written)


def test_a_process_that_hangs(module_cluster: Cluster) -> None:
    pid = module_cluster.running.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        done = sandpool("status", *module_cluster.flag, check=False)
        assert done.returncode == 1
        assert f"process {pid} holds" in done.stderr
        assert "does not answer" in done.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    assert module_cluster.status()["healthy"] is True


def test_a_process_that_does_not_stop(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data") as cluster:
        pid = cluster.running.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            assert f"kill -9 {pid}" in refused("down", *cluster.flag, "--timeout", "0.1", code=4)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_down_while_it_is_still_starting(tmp_path: Path) -> None:
    directory = DataDir(tmp_path / "data")
    command = [*COMMAND, "up", "--data-dir", str(directory.root), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not directory.holder():  # from the moment at which it is known whom to stop
            assert process.poll() is None
            os.sched_yield()
        sandpool("down", "--data-dir", str(directory.root))
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
        assert process.wait(30) == 0
    assert directory.holder() is None


def test_a_reader_who_leaves_early() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([*COMMAND, "crds"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this root may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("room", [0, 40_000, 90_000])
def test_a_disk_without_room(small_disk: Path, room: int) -> None:
    (small_disk / "ballast").write_bytes(bytes((1 << 20) - 8192 - room))
    said = refused("up", "--data-dir", str(small_disk / "data"), "--port", "0")
    assert "No space left" in said or "check the room on its disk" in said


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a read-only disk needs root")
def test_a_disk_that_may_only_be_read(small_disk: Path) -> None:
    data = DataDir(small_disk / "data")
    data.prepare()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for command in (["up", "--port", "0"], ["up", "--port", "0", "--detach"]):
        assert "Read-only file system" in refused(*command, "--data-dir", str(data.root))
    assert "no cluster is running" in refused("status", "--data-dir", str(data.root), code=3)

"""What a container mounts, and that no path leads out of its volume."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandpool.local.backends.base import ContainerSpec, PodSecurityContext, VolumeMount
from sandpool.local.backends.pods.mounts import below, mounts
from sandpool.local.backends.runtime import Mount, User
from sandpool.local.errors import NodeError
from sandpool.local.volumes.spec import Volume

NOBODY = PodSecurityContext()


def made(*wanted: VolumeMount, pod: PodSecurityContext = NOBODY, **volumes: Volume) -> tuple[Mount, ...]:
    return mounts(ContainerSpec(name="main", volume_mounts=wanted), volumes, pod, None)


def test_outer_before_inner(tmp_path: Path) -> None:
    volume = Volume("v", tmp_path)
    found = made(
        VolumeMount(name="v", mount_path="/a/b/c"), VolumeMount(name="v", mount_path="/a", read_only=True), v=volume
    )
    assert [(mount.target, mount.read_only) for mount in found] == [("/a", True), ("/a/b/c", False)]
    assert found[0].source == tmp_path


def test_a_volume_that_is_read_only_stays_so(tmp_path: Path) -> None:
    (mount,) = made(VolumeMount(name="v", mount_path="/a"), v=Volume("v", tmp_path, read_only=True))
    assert mount.read_only


def test_memory(tmp_path: Path) -> None:
    (mount,) = made(VolumeMount(name="v", mount_path="/a"), v=Volume("v", tmpfs_size=5))
    assert (mount.source, mount.volume, mount.size) == (None, "v", 5)
    with pytest.raises(NodeError, match="subPath"):
        made(VolumeMount(name="v", mount_path="/a", sub_path="x"), v=Volume("v", tmpfs_size=5))


def test_the_owner_is_whom_the_pod_names(tmp_path: Path) -> None:
    pod = PodSecurityContext(run_as_user=5, fs_group=6)
    (mount,) = made(VolumeMount(name="v", mount_path="/a"), pod=pod, v=Volume("v", tmp_path))
    assert mount.owner == User(5, 6)


@pytest.mark.parametrize("path", ["/", "//", "/..", "/a/../..", "", "/."])
def test_the_root_and_above_are_no_place_for_a_volume(tmp_path: Path, path: str) -> None:
    with pytest.raises(NodeError, match="mountPath"):
        made(VolumeMount(name="v", mount_path=path), v=Volume("v", tmp_path))


def test_a_volume_that_is_not_there_is_told() -> None:
    with pytest.raises(NodeError, match=r"spec\.volumes"):
        made(VolumeMount(name="v", mount_path="/a"))


def test_a_missing_path_is_made(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        found = below(tmp_path, "a/b", "here")
    finally:
        os.umask(old)
    assert found == tmp_path.resolve() / "a" / "b"
    assert found.is_dir()
    assert found.stat().st_mode & 0o777 == 0o777
    (mount,) = made(VolumeMount(name="v", mount_path="/a", sub_path="a/b"), v=Volume("v", tmp_path))
    assert (mount.source, mount.within) == (found, tmp_path)


def test_links_may_lead_around_inside(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("x")
    (tmp_path / "file").symlink_to("data/file")
    assert below(tmp_path, "file", "here") == tmp_path.resolve() / "data" / "file"


@pytest.mark.parametrize("target", ["/etc", "..", "../..", "/", "a/../../outside"])
def test_links_never_lead_out(tmp_path: Path, target: str) -> None:
    volume = tmp_path / "volume"
    (volume / "a").mkdir(parents=True)
    (volume / "link").symlink_to(target)
    for sub in ("link", "link/passwd", "link/made-by-us"):
        with pytest.raises(NodeError):
            below(volume, sub, "here")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["volume"]


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(NodeError):
        below(tmp_path, "one", "here")


@pytest.mark.parametrize("sub", ["/etc", "../x", "a/../../b", ".."])
def test_the_path_itself_may_not_leave(tmp_path: Path, sub: str) -> None:
    with pytest.raises(NodeError, match="subPath"):
        below(tmp_path, sub, "here")


def test_the_file_for_the_last_words(tmp_path: Path) -> None:
    spec = ContainerSpec(termination_message_path="/dev/termination-log")
    (mount,) = mounts(spec, {}, NOBODY, tmp_path / "words")
    assert (mount.target, mount.required) == ("/dev/termination-log", False)

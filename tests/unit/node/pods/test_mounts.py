"""What a container mounts. That no path leads out of its volume: see test_sources.py of namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.backend import ContainerSpec, PodSecurityContext, VolumeMount
from sandpool.node.pods.runtime_plans import mounts
from sandpool.node.runtimes.contract import Mount, User
from sandpool.node.volumes.spec import Volume

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


def test_a_part_of_a_volume_is_left_to_whoever_mounts_it(tmp_path: Path) -> None:
    """A path that is judged here could be another one when it is opened there."""
    volume = Volume("v", tmp_path / "data", within=tmp_path)
    (mount,) = made(VolumeMount(name="v", mount_path="/a", sub_path="a/b"), v=volume)
    assert (mount.source, mount.within, mount.sub_path, mount.make) == (tmp_path / "data", tmp_path, "a/b", True)
    assert list(tmp_path.iterdir()) == []
    (whole,) = made(VolumeMount(name="v", mount_path="/a", sub_path="./"), v=volume)
    assert whole.sub_path == ""
    (fixed,) = made(VolumeMount(name="v", mount_path="/a", sub_path="a"), v=Volume("v", tmp_path, read_only=True))
    assert not fixed.make


@pytest.mark.parametrize("sub", ["/etc", "../x", "a/../../b", "..", "a\0b"])
def test_the_path_itself_may_not_leave(tmp_path: Path, sub: str) -> None:
    with pytest.raises(NodeError, match="subPath"):
        made(VolumeMount(name="v", mount_path="/a", sub_path=sub), v=Volume("v", tmp_path))


def test_the_file_for_the_last_words(tmp_path: Path) -> None:
    spec = ContainerSpec(termination_message_path="/dev/termination-log")
    (mount,) = mounts(spec, {}, NOBODY, tmp_path / "words")
    assert (mount.target, mount.required) == ("/dev/termination-log", False)

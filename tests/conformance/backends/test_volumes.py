"""Volumes and last words: where a backend can mount, what is mounted; where it cannot, that it says so."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from conformance.backends.subject import Subject, a_workload, ended, gone
from sandpool.node.backend import (
    Command,
    ContainerSpec,
    Exit,
    PodStatus,
    SecurityContext,
    VolumeMount,
    Waiting,
    Workload,
    WorkloadSpec,
)
from sandpool.node.volumes.spec import Claim, Content, EmptyDir, VolumeSpec
from support.node.streams import TestStreams


async def mounting(subject: Subject) -> None:
    if "filesystem" not in (await subject.backend.probe()).enforced:
        pytest.skip("this backend cannot mount")


def a_container(command: str, *mounts: VolumeMount, name: str = "main", **fields: Any) -> ContainerSpec:
    return ContainerSpec(name=name, image="host", command=("sh", "-c", command), volume_mounts=mounts, **fields)


def a_pod(*containers: ContainerSpec, init: tuple[ContainerSpec, ...] = (), **sources: Any) -> Workload:
    spec = WorkloadSpec(init_containers=init, containers=containers)
    volumes = tuple(VolumeSpec(name, source) for name, source in sources.items())
    return replace(a_workload(), spec=spec, volumes=volumes)


async def output(subject: Subject, work: Workload) -> str:
    await subject.backend.start_pod(work)
    await subject.until(work.uid, ended)
    return b"".join([text async for text in subject.backend.logs(work.uid, "main")]).decode()


async def test_a_backend_that_cannot_mount_refuses(real: Subject) -> None:
    if "filesystem" in (await real.backend.probe()).enforced:
        pytest.skip("this backend can mount")
    work = a_pod(a_container("true", VolumeMount(name="data", mount_path="/data")), data=EmptyDir())
    await real.backend.start_pod(work)

    def refused(seen: PodStatus | None) -> bool:
        state = seen.containers[0].state if seen is not None else None
        return isinstance(state, Waiting) and state.reason == "MountUnsupported" and "/data" in state.message

    await real.until(work.uid, refused)


async def test_containers_share_volumes_on_disk_and_in_memory(real: Subject) -> None:
    await mounting(real)
    both = (VolumeMount(name="disk", mount_path="/disk"), VolumeMount(name="memory", mount_path="/memory"))
    first = a_container("echo one > /disk/file && echo two > /memory/file", *both, name="first")
    work = a_pod(
        a_container("cat /disk/file /memory/file", *both),
        init=(first,),
        disk=EmptyDir(),
        memory=EmptyDir(memory=True, size=1 << 20),
    )
    assert await output(real, work) == "one\ntwo\n"


async def test_a_claim_outlives_its_pod_and_an_empty_folder_does_not(real: Subject) -> None:
    await mounting(real)
    mounts = (VolumeMount(name="claim", mount_path="/claim"), VolumeMount(name="empty", mount_path="/empty"))
    text = "ls /claim /empty; touch /claim/kept /empty/lost"
    work = a_pod(a_container(text, *mounts), claim=Claim("default", "c", "claim-1"), empty=EmptyDir())
    assert "kept" not in await output(real, work)
    await real.backend.stop_pod(work.uid, 0)
    await real.until(work.uid, gone)
    again = await output(real, work)
    assert "kept" in again
    assert "lost" not in again


async def test_what_is_read_only_cannot_be_written(real: Subject) -> None:
    await mounting(real)
    mount = VolumeMount(name="config", mount_path="/config", read_only=True)
    text = "cat /config/key; echo x > /config/key || echo refused"
    work = a_pod(a_container(text, mount), config=Content({"key": b"value\n"}))
    said = (await output(real, work)).splitlines()
    assert {"value", "refused"} <= set(said)
    assert (real.folder / "volumes" / "pods" / work.uid / "config" / "key").read_bytes() == b"value\n"


async def test_a_part_of_a_volume_is_mounted_and_no_more(real: Subject) -> None:
    await mounting(real)
    whole = VolumeMount(name="v", mount_path="/whole")
    part = VolumeMount(name="v", mount_path="/part", sub_path="a/b")
    first = a_container(
        "mkdir -p /whole/a/b && echo in > /whole/a/b/file && echo out > /whole/file", whole, name="first"
    )
    work = a_pod(a_container("cat /part/file; ls /part /part/..", part), init=(first,), v=EmptyDir())
    said = await output(real, work)
    assert said.startswith("in\n/part:\nfile\n")
    assert "out" not in said


@pytest.mark.parametrize("target", ["/etc", "../../../../../../etc", ".."])
async def test_a_link_in_a_volume_leads_nowhere(real: Subject, target: str) -> None:
    """An init container lays a trap: the next one would get a folder of the machine."""
    await mounting(real)
    whole = VolumeMount(name="v", mount_path="/whole")
    part = VolumeMount(name="v", mount_path="/part", sub_path="link")
    first = a_container(f"ln -s {target} /whole/link", whole, name="first")
    work = a_pod(a_container("ls /part", part), init=(first,), v=EmptyDir())
    await real.backend.start_pod(work)

    def refused(seen: PodStatus | None) -> bool:
        state = seen.containers[0].state if seen is not None else None
        return isinstance(state, Waiting) and state.reason == "CreateContainerConfigError"

    await real.until(work.uid, refused)


async def test_last_words(real: Subject) -> None:
    await mounting(real)
    for number, (text, words) in enumerate(
        (
            ("printf 'it broke' > /dev/termination-log; exit 1", "it broke"),
            ("head -c 100000 /dev/zero | tr '\\0' x > /dev/termination-log", "x" * 4096),
            ("true", ""),
        )
    ):
        container = a_container(text, termination_message_path="/dev/termination-log")
        work = replace(a_workload(number + 1), spec=WorkloadSpec(containers=(container,)))
        await real.backend.start_pod(work)
        await real.until(work.uid, ended)
        end = real.container(work.uid).state
        assert isinstance(end, Exit)
        assert end.message == words


async def test_a_root_that_is_read_only(real: Subject) -> None:
    await mounting(real)
    mount = VolumeMount(name="v", mount_path="/data")
    container = a_container(
        "touch /tmp/x /x 2>/dev/null || echo refused; touch /data/x && echo written",
        mount,
        security_context=SecurityContext(read_only_root_filesystem=True),
    )
    assert await output(real, a_pod(container, v=EmptyDir())) == "refused\nwritten\n"


async def test_each_run_begins_with_a_fresh_root(real: Subject) -> None:
    await mounting(real)
    work = a_pod(a_container("test -e /var/mark && echo stale; echo x > /var/mark; test -e /var/mark || echo lost"))
    assert await output(real, work) == ""
    await real.backend.restart_container(work.uid, "main")
    await real.until(work.uid, lambda seen: ended(seen) and seen is not None and seen.containers[0].restarts == 1)
    assert b"".join([text async for text in real.backend.logs(work.uid, "main")]) == b""


async def test_output_may_be_opened_by_name_by_any_user(real: Subject) -> None:
    await mounting(real)
    if os.geteuid() != 0:
        pytest.skip("only root can run programs as other users")
    other = SecurityContext(run_as_user=1000)
    container = a_container("id -u > /dev/stdout; exec sleep 1000", security_context=other)
    work = a_pod(container)
    await real.started(work)
    async for text in real.backend.logs(work.uid, "main", follow=True):
        assert text == b"1000\n"
        break
    streams = TestStreams()
    await real.backend.exec(work.uid, "main", Command(("sh", "-c", "echo named > /dev/stderr")), streams)
    assert bytes(streams.out[2]) == b"named\n"


async def test_what_the_api_holds_is_replaced_while_it_is_mounted(real: Subject) -> None:
    await mounting(real)
    mounts = (VolumeMount(name="c", mount_path="/c"), VolumeMount(name="e", mount_path="/e"))
    work = a_pod(a_container("echo mine > /e/f; exec sleep 1000", *mounts), c=Content({"f": b"old"}), e=EmptyDir())
    await real.started(work)
    await real.backend.refresh(work.uid, (VolumeSpec("c", Content({"f": b"new"})), VolumeSpec("e", EmptyDir())))
    streams = TestStreams()
    assert (await real.backend.exec(work.uid, "main", Command(("cat", "/c/f", "/e/f")), streams)).code == 0
    assert streams.text == b"newmine\n"
    await real.backend.stop_pod(work.uid, 0)
    await real.until(work.uid, gone)
    await real.backend.refresh(work.uid, (VolumeSpec("c", Content({"f": b"late"})),))
    assert not (real.folder / "volumes" / "pods" / work.uid).exists()

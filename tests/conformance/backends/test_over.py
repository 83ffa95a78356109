"""A pod that is over keeps its logs until it is stopped, and nothing else."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from conformance.backends.subject import Subject, a_workload, ended, gone, ready
from conformance.backends.test_nothing_left import descriptors, files_of
from conformance.backends.test_volumes import a_container, a_pod, mounting
from sandpool.node.backend import BackendError, Command, Exit, PodStatus, Stats, VolumeMount, Workload
from sandpool.node.volumes.spec import Claim, Content, EmptyDir, VolumeSpec
from support.node.streams import TestStreams

LARGE = 1 << 20


def reclaimed(seen: PodStatus | None) -> bool:
    return seen is not None and seen.reclaimed


async def over(subject: Subject, work: Workload) -> PodStatus:
    """It has run, and is over."""
    await subject.backend.start_pod(work)
    await subject.until(work.uid, ended)
    await subject.backend.reclaim(work)
    seen = await subject.until(work.uid, reclaimed)
    assert seen is not None
    return seen


async def stopped(subject: Subject, work: Workload) -> None:
    await subject.backend.stop_pod(work.uid, 1000)  # nothing is waited for
    await subject.until(work.uid, gone)


async def log(subject: Subject, work: Workload, container: str = "main", *, previous: bool = False) -> bytes:
    return b"".join([text async for text in subject.backend.logs(work.uid, container, previous=previous)])


async def test_how_it_ended_stays_known_and_nothing_is_started_again(subject: Subject) -> None:
    work = a_workload(command="exit 3")
    await subject.backend.start_pod(work)
    before = await subject.until(work.uid, ended)
    await subject.backend.reclaim(work)
    seen = await subject.until(work.uid, reclaimed)
    assert before is not None
    assert seen is not None
    assert (seen.containers, seen.address, seen.stopping) == (before.containers, "", False)
    told = len(subject.told)
    await subject.backend.reclaim(work)
    await subject.backend.restart_container(work.uid, "main")
    await subject.backend.stop_container(work.uid, "main", 0)
    await subject.backend.start_pod(work)
    await subject.a_while()
    assert (subject.backend.pod_status(work.uid), len(subject.told)) == (seen, told)
    assert await subject.backend.stats(work.uid) == Stats()
    await stopped(subject, work)


async def test_whatever_runs_is_ended(subject: Subject) -> None:
    """Somebody has said that the pod is over while it was not."""
    work = a_workload()
    await subject.started(work)
    await subject.backend.reclaim(work)
    seen = await subject.until(work.uid, reclaimed)
    assert ended(seen)
    await stopped(subject, work)


async def test_whatever_is_being_started_is_given_up(subject: Subject) -> None:
    for number in range(1, 6):
        work = a_workload(number)
        await subject.backend.start_pod(work)
        for _ in range(number):
            await subject.news.wait()
            subject.news.clear()
            if ready(subject.backend.pod_status(work.uid)):
                break
        await subject.backend.reclaim(work)
        seen = await subject.until(work.uid, reclaimed)
        assert not ready(seen)
        await stopped(subject, work)


async def test_one_of_an_earlier_process_is_taken_over_and_not_started(subject: Subject) -> None:
    work = a_workload(command="exit 3")
    await subject.backend.start_pod(work)
    before = await subject.until(work.uid, ended)
    await subject.backend.close()
    await subject.open()
    await subject.backend.reclaim(replace(work, was=before))
    seen = await subject.until(work.uid, reclaimed)
    assert before is not None
    assert seen is not None
    assert (seen.key, seen.address, seen.containers) == (work.key, "", before.containers)
    await stopped(subject, work)


async def test_one_that_never_ran_leaves_nothing(subject: Subject) -> None:
    work = a_workload(init=True)
    await subject.backend.reclaim(work)
    await subject.until(work.uid, reclaimed)
    await stopped(subject, work)
    assert files_of(subject) == []


async def test_its_logs_are_read_also_by_a_later_process(real: Subject) -> None:
    work = a_workload(command="echo said; exit 1", init=True)
    first = structs.replace(work.spec.init_containers[0], command=("echo", "first"))
    work = replace(work, spec=structs.replace(work.spec, init_containers=(first,)))
    await real.backend.start_pod(work)
    await real.until(work.uid, ended)
    await real.backend.restart_container(work.uid, "main")
    await real.until(work.uid, lambda seen: ended(seen) and seen is not None and seen.containers[0].restarts == 1)
    await real.backend.reclaim(work)
    known = await real.until(work.uid, reclaimed)
    assert known is not None
    for _ in range(3):
        assert await log(real, work) == await log(real, work, previous=True) == b"said\n"
        assert await log(real, work, "first") == b"first\n"
        assert {path.parent.parent.name for path in files_of(real)} == {"logs"}
        await real.backend.close()
        await real.open()
        await real.backend.reclaim(replace(work, was=known))
        assert await real.until(work.uid, reclaimed) == known
    await stopped(real, work)
    assert files_of(real) == []


async def test_only_logs_are_left(real: Subject) -> None:
    """With gVisor a kernel ends, too."""
    warm = a_workload(99)  # what a backend makes once, it has made then
    await real.started(warm)
    await real.backend.stop_pod(warm.uid, 0)
    await real.until(warm.uid, gone)
    before = descriptors()
    work = a_workload(command="echo said")
    if "filesystem" in (await real.backend.probe()).enforced:  # else the files would be this machine's
        fill = f"for path in /dev/termination-log /var/file; do head -c {LARGE} /dev/zero > $path; done; echo said"
        work = a_pod(a_container(fill, termination_message_path="/dev/termination-log"))
    await over(real, work)
    assert descriptors() == before
    assert {path.parent.parent.name for path in files_of(real)} == {"logs"}
    assert await log(real, work) == b"said\n"
    for asked in (
        real.backend.exec(work.uid, "main", Command(("true",)), TestStreams()),
        real.backend.attach(work.uid, "main", TestStreams()),
        real.backend.dial(work.uid, 80),
        real.backend.connect(work.uid, "main"),
    ):
        with pytest.raises(BackendError):
            await asked
    await stopped(real, work)
    assert files_of(real) == []


async def test_its_volumes_go_and_its_claims_stay(real: Subject) -> None:
    await mounting(real)
    names = ("disk", "memory", "claim", "secret")
    mounts = [VolumeMount(name=name, mount_path=f"/mnt/{name}") for name in names]
    fill = "for name in disk memory claim; do head -c 100000 /dev/zero > /mnt/$name/x; done"
    sources: dict[str, Any] = {
        "disk": EmptyDir(),
        "memory": EmptyDir(memory=True, size=LARGE),
        "claim": Claim("default", "claim", "claim-uid"),
        "secret": Content({"file": b"secret"}, secret=True),
    }
    work = a_pod(a_container(fill, *mounts), **sources)
    seen = await over(real, work)
    assert isinstance(seen.containers[0].state, Exit)
    assert seen.containers[0].state.code == 0
    kept = real.folder / "volumes"
    assert not (kept / "pods" / work.uid).exists()
    assert (kept / "claims" / "claim-uid" / "x").stat().st_size == 100000
    await stopped(real, work)


async def test_volumes_that_an_earlier_process_left_go_too(real: Subject) -> None:
    """It ended after it had said that the pod is over."""
    work = replace(a_workload(command="exit 0"), volumes=(VolumeSpec("data", EmptyDir()),))
    await real.backend.start_pod(work)
    before = await real.until(work.uid, ended)
    volume = real.folder / "volumes" / "pods" / work.uid
    Path(volume, "data", "file").write_bytes(b"mine")
    await real.backend.close()
    assert os.path.exists(volume)
    await real.open()
    await real.backend.reclaim(replace(work, was=before))
    await real.until(work.uid, reclaimed)
    assert not os.path.exists(volume)
    await stopped(real, work)


async def test_a_message_is_not_kept_when_its_container_has_ended(real: Subject) -> None:
    await mounting(real)
    container = a_container(
        f"head -c {LARGE} /dev/zero | tr '\\0' x > /dev/termination-log",
        termination_message_path="/dev/termination-log",
    )
    work = a_pod(container)
    await real.backend.start_pod(work)
    seen = await real.until(work.uid, ended)
    assert seen is not None
    assert isinstance(seen.containers[0].state, Exit)
    assert seen.containers[0].state.message == "x" * 4096
    assert not [path for path in files_of(real) if path.parent.name == "messages"]
